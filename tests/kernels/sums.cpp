#include "kernels/codec_against_host.hpp"

#include <zeropp/codec/cuda/instructions.cuh>
#include <zeropp/codec/cuda/sum_source.cuh>
#include <zeropp/codec/cuda/tiles_ahead.cuh>

namespace kernels = zeropp_test::kernels;
using zeropp::block_integer;
using zeropp::cast_to;
using zeropp::half;

TEST_CASE("kernels: sums from one quantizer to another", "[kernels]") {
    constexpr block_integer<8, 256> eight_bits;
    constexpr block_integer<4, 128> four_bits;
    kernels::check_sums(eight_bits, four_bits);
    kernels::check_sums(four_bits, eight_bits);
    kernels::check_sums(four_bits, four_bits);
    kernels::check_sums(cast_to<float>(), four_bits);
    kernels::check_sums(eight_bits, cast_to<half>());
    kernels::check_sums(block_integer<4, 128, zeropp::symmetric, zeropp::bfloat16>(), four_bits);
    constexpr block_integer<8, 256, zeropp::symmetric, zeropp::bfloat16> short_scales;
    kernels::check_sums(short_scales, short_scales);
}

TEST_CASE("kernels: sums between blocks of unlike sizes", "[kernels]") {
    kernels::check_sums(block_integer<8, 2048>(), block_integer<4, 128, zeropp::asymmetric, half>());
    kernels::check_sums(block_integer<6, 128>(), block_integer<6, 128>());
    kernels::check_sums(block_integer<6, 128>(), block_integer<6, 2048>());
    kernels::check_sums(block_integer<5, 64>(), block_integer<3, 16>());
    kernels::check_sums(block_integer<5, 64, zeropp::signed_absmax, half>(), block_integer<8, 65536>());
}

TEST_CASE("kernels: sums of more tiles for a thread block than it loads ahead", "[kernels]") {
    constexpr block_integer<4, 128, zeropp::signed_absmax, zeropp::bfloat16> four_bits;
    // The parameters of a message begin in the middle of a word.
    constexpr std::size_t n = 11 * 8192 + 2;
    STATIC_REQUIRE(zeropp::wire_layout<decltype(four_bits)>(n).params_offset % 4 == 2);
    const kernels::owned_stream stream(1);
    for (kernels::variation v; v.n != 6; ++v.n) {
        kernels::check_reduce_encode(stream.exec(), four_bits, four_bits, kernels::layouts(n, 128).front(), v);
        kernels::check_reduce_encode(stream.exec(), block_integer<4, 128>(), four_bits,
                                     kernels::layouts(n, 128).front(), v);
    }
    REQUIRE(kernels::device_fault() == "");
}
