#include "simt/codec_against_host.hpp"

#include <zeropp/codec/cuda/sum_source.cuh>

namespace simt = zeropp_test::simt;
using zeropp::block_integer;
using zeropp::half;
using zeropp::lossless;

TEST_CASE("kernels: sums from one quantizer to another", "[simt][kernels]") {
    constexpr block_integer<8, 256> eight_bits;
    constexpr block_integer<4, 128> four_bits;
    simt::check_sums(eight_bits, four_bits);
    simt::check_sums(four_bits, eight_bits);
    simt::check_sums(four_bits, four_bits);
    simt::check_sums(lossless<float>(), four_bits);
    simt::check_sums(eight_bits, lossless<half>());
}

TEST_CASE("kernels: sums between blocks of unlike sizes", "[simt][kernels]") {
    simt::check_sums(block_integer<8, 2048>(), block_integer<4, 128, zeropp::asymmetric, half>());
    simt::check_sums(block_integer<6, 128>(), block_integer<4, 2048>());
    simt::check_sums(block_integer<3, 8>(), block_integer<5, 64>());
    simt::check_sums(block_integer<5, 64, zeropp::signed_absmax, half>(), block_integer<8, 65536>());
}
