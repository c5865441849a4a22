#include "simt/codec_against_host.hpp"

#include <zeropp/codec/cuda/codes.cuh>

namespace simt = zeropp_test::simt;
using zeropp::block_integer;

TEST_CASE("kernels: codes of widths that do not divide a word", "[simt][kernels]") {
    simt::check_tensors<zeropp::bfloat16>(block_integer<6, 128>());
    simt::check_tensors<float>(block_integer<5, 64>());
    simt::check_tensors<zeropp::half>(block_integer<7, 32, zeropp::symmetric, zeropp::bfloat16>());
    simt::check_tensors<zeropp::bfloat16>(block_integer<3, 16>());
    simt::check_tensors<zeropp::bfloat16>(block_integer<2, 64>());
}

TEST_CASE("kernels: blocks of one thread, and of more than a thread holds", "[simt][kernels]") {
    simt::check_tensors<zeropp::bfloat16>(block_integer<3, 8>());
    simt::check_tensors<float>(block_integer<8, 16>());
    simt::check_tensors<zeropp::bfloat16>(block_integer<4, 65536>());
}
