/// \file
/// secondary_partition: what is kept, in which memory, and when it is valid.

#include "collective/ranks.hpp"
#include "support/catch.hpp"

#include <zeropp/codec/host.hpp>
#include <zeropp/collective/kept_messages.hpp>
#include <zeropp/collective/secondary_partition.hpp>
#include <zeropp/execution/host.hpp>
#include <zeropp/quantizer/block_integer.hpp>
#include <zeropp/quantizer/cast_to.hpp>

using namespace collective_test;
using zeropp::host;

namespace {
using lossless_partition = zeropp::secondary_partition<zeropp::cast_to<float>, zeropp::host_space>;
using quantized_partition = zeropp::secondary_partition<zeropp::block_integer<8, 256>, zeropp::host_space>;
}  // namespace

TEST_CASE("secondary partition: storage is one message of 1/k of the tensor") {
    // 4 bytes for each of ceil(1003 / 4) = 251 elements, a multiple of 16 in all.
    REQUIRE(lossless_partition::storage_bytes({}, 1003, 4) == 1008);
    // 335 codes, one byte of padding, two scales of 4 bytes: 344, a multiple of 16 in all.
    REQUIRE(quantized_partition::storage_bytes({}, 1003, 3) == 352);
    REQUIRE(quantized_partition::storage_bytes({}, 0, 3) == 0);
}

TEST_CASE("secondary partition: writes exactly its storage, and keeps its part") {
    const std::vector<float> tensor = tensor_of(1003, reference::fp32, 1);
    for (int index = 0; index != 4; ++index) {
        guarded<std::byte> storage(lossless_partition::storage_bytes({}, 1003, 4));
        lossless_partition secondary({}, 1003, 4, index, storage.view());
        secondary.store(host{}, tensor, 5);
        REQUIRE(storage.intact());
        const std::vector<float> part = reference::slice_of(tensor, 4, at(index));
        const auto* kept = reinterpret_cast<const float*>(storage.data());
        REQUIRE(difference(widened(kept, part.size()), part) == "");
        REQUIRE(secondary.index() == index);
        REQUIRE(secondary.group_size() == 4);
        REQUIRE(secondary.elements() == 1003);
    }
}

TEST_CASE("secondary partition: a version is there from store to invalidate") {
    guarded<std::byte> storage(quantized_partition::storage_bytes({}, 300, 2));
    quantized_partition secondary({}, 300, 2, 1, storage.view());
    const std::vector<float> tensor(300, 1.0f);
    REQUIRE_FALSE(secondary.version());
    secondary.store(host{}, tensor, 0);
    REQUIRE(secondary.version() == 0u);
    secondary.store(host{}, tensor, 0xffffffffffffffffu);
    REQUIRE(secondary.version() == 0xffffffffffffffffu);
    secondary.invalidate();
    REQUIRE_FALSE(secondary.version());
    secondary.store(host{}, tensor, 3);
    REQUIRE(secondary.version() == 3u);
}

TEST_CASE("secondary partition: wrong storage and wrong tensors throw") {
    const std::size_t bytes = quantized_partition::storage_bytes({}, 300, 2);
    guarded<std::byte> less(bytes - 1);
    REQUIRE_THROWS_AS(quantized_partition({}, 300, 2, 0, less.view()), zeropp::precondition_error);
    guarded<std::byte> misaligned(bytes, 8);
    REQUIRE_THROWS_AS(quantized_partition({}, 300, 2, 0, misaligned.view()), zeropp::precondition_error);

    guarded<std::byte> storage(bytes);
    quantized_partition secondary({}, 300, 2, 0, storage.view());
    for (const std::size_t size : {0u, 150u, 299u, 301u}) {
        REQUIRE_THROWS_AS(secondary.store(host{}, std::vector<float>(size), 1), zeropp::precondition_error);
    }
    REQUIRE(storage.untouched());
    REQUIRE_FALSE(secondary.version());
}
