/// \file
/// Messages of changed elements: what a message says is done, and nothing else, whatever it says.

#include <zeropp/codec/host.hpp>

#include "support/catch.hpp"
#include "support/changes_reference.hpp"
#include "support/samples.hpp"

#include <zeropp/core/element.hpp>
#include <zeropp/execution/host.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

using codec = zeropp::codec<zeropp::host>;
using zeropp::bfloat16;
using zeropp::changes_layout;
using zeropp::host;
using zeropp::slices;

TEST_CASE("changes: counted, encoded and decoded, where groups are whole and where they are not") {
    for (const std::size_t n : {1u, 255u, 256u, 257u, 1000u}) {
        std::vector<bfloat16> before(n, bfloat16(1.0f)), after = before;
        for (std::size_t i = 0; i < n; i += 3) after[i] = bfloat16(static_cast<float>(i % 50) + 2);
        const slices whole = slices::single(n, 0, n);
        const zeropp::difference changed{after.data(), before.data()};
        std::uint64_t count = 0;
        codec::count_changes(host{}, changed, whole, &count);
        CHECK(count == (n + 2) / 3);
        const changes_layout layout((n + 255) / 256, count, sizeof(bfloat16));
        std::vector<std::byte> message(layout.bytes, std::byte{0xa5});
        codec::encode_changes(host{}, changed, whole, layout, nullptr, message.data());
        REQUIRE((message == zeropp_test::changes_message(after.data(), before.data(), n, (n + 255) / 256, count)));
        codec::decode_changes(host{}, message.data(), layout, whole, before.data(), nullptr);
        CHECK(std::equal(before.begin(), before.end(), after.begin(),
                         [](bfloat16 a, bfloat16 b) { return a.bits == b.bits; }));
    }
}

TEST_CASE("changes: a message of anything writes nothing outside its elements") {
    zeropp_test::random_source random(7);
    for (int i = 0; i != 2000; ++i) {
        const std::size_t n = 1 + random.below(600);
        const changes_layout layout((n + 255) / 256, random.below(40), sizeof(bfloat16));
        std::vector<std::byte> message(layout.bytes);
        for (std::byte& b : message) b = static_cast<std::byte>(random.below(256));
        // Guards on both sides.
        std::vector<bfloat16> memory(n + 600, bfloat16(3.0f));
        codec::decode_changes(host{}, message.data(), layout, slices::single(n, 0, n), memory.data() + 300, nullptr);
        const auto untouched = [](bfloat16 x) { return x.bits == bfloat16(3.0f).bits; };
        REQUIRE(std::all_of(memory.begin(), memory.begin() + 300, untouched));
        REQUIRE(std::all_of(memory.end() - 300, memory.end(), untouched));
    }
}
