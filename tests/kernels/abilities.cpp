#include "kernels/abilities_against_host.hpp"

#include <zeropp/codec/cuda/message_values.cuh>
#include <zeropp/quantizer/hadamard.hpp>
#include <zeropp/quantizer/lloyd_max.hpp>
#include <zeropp/quantizer/stochastic.hpp>

#include <cstddef>
#include <numeric>
#include <type_traits>
#include <vector>

namespace kernels = zeropp_test::kernels;
using zeropp::block_integer;
using zeropp::hadamard;
using zeropp::lloyd_max;
using zeropp::stochastic;

TEST_CASE("kernels: codes of one bit and of few levels", "[kernels]") {
    kernels::check_tensors<zeropp::bfloat16>(hadamard<lloyd_max<2, 128, zeropp::unbiased>, 128>());
    kernels::check_sums(hadamard<lloyd_max<4, 128>, 128>(), lloyd_max<3, 32>());
    kernels::check_tensors<zeropp::bfloat16>(hadamard<lloyd_max<3, 128>, 128>());
    kernels::check_encodings<float>(lloyd_max<3, 2048>());
    kernels::check_sums(lloyd_max<3, 128>(), lloyd_max<2, 64>());
}

TEST_CASE("kernels: noise belongs to elements, wherever they are encoded", "[kernels]") {
    kernels::check_encodings<float>(stochastic<block_integer<4, 128>>(0x123456789abcdef0u, 7));
    kernels::check_encodings<zeropp::bfloat16>(stochastic<hadamard<block_integer<4, 32>>>(3, std::uint64_t{1} << 40));
    kernels::check_sums(block_integer<8, 64>(), stochastic<block_integer<4, 128>>(5, 1));
}

TEST_CASE("kernels: differences of tensors", "[kernels]") {
    kernels::check_differences<float, zeropp::bfloat16>(hadamard<block_integer<4, 128>>());
    kernels::check_differences<zeropp::half, zeropp::half>(block_integer<8, 2048>());
}

// Two slots have no rank, as on nodes of unequal size.
TEST_CASE("kernels: a table of many slots, of which each is a launch", "[kernels]") {
    using zeropp::bfloat16;
    constexpr int slots = 41;
    constexpr std::size_t n = 1503;
    std::vector<int> ranks(slots);
    std::iota(ranks.rbegin(), ranks.rend(), 0);
    const zeropp::partition part(n, slots - 2);
    const kernels::layout l{"slots", {part, {slots, 0, 0, ranks.data()}, 0, part.slice_size(), 0, slots}};
    const kernels::owned_stream stream(3);
    const block_integer<4, 128> q;
    for (std::size_t i = 0; i != 6; ++i) {
        const kernels::variation v{i};
        INFO("variation " << i);
        kernels::check_encode<float>(stream.exec(), q, l, v);
        kernels::check_reduce_decode<float>(stream.exec(), q, l, v);
        kernels::check_reduce_encode(stream.exec(), block_integer<8, 64>(), stochastic<block_integer<4, 128>>(5, 1), l,
                                     v);
        // Shards in rank order and, packed, in slot order.
        const auto elements = kernels::tensor<bfloat16>(slots * part.slice_size(), 0, v.salt());
        const kernels::device_array<bfloat16> in(elements);
        const auto check = [&](const auto& where) {
            kernels::check_residuals(stream.exec(), block_integer<8, 128>(), q, l, v,
                                     [&]<class Codec>(Codec, const auto& on, std::byte* messages, const auto& memory) {
                                         const bool host = std::is_same_v<Codec, kernels::on_host>;
                                         Codec::write(on, q, host ? elements.data() : in.data(), where, messages,
                                                      memory);
                                     });
        };
        check(l.where);
        check(zeropp::packed_slices<zeropp::slices>{l.where, part.slice_size()});
    }
    REQUIRE(kernels::device_fault() == "");
}
