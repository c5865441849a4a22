#include "kernels/codec_against_host.hpp"

#include <zeropp/codec/cuda/codes.cuh>

namespace kernels = zeropp_test::kernels;
using zeropp::block_integer;

TEST_CASE("kernels: codes of widths that do not divide a word", "[kernels]") {
    kernels::check_tensors<zeropp::bfloat16>(block_integer<6, 128>());
    kernels::check_tensors<float>(block_integer<5, 64>());
    kernels::check_tensors<zeropp::half>(block_integer<7, 32, zeropp::symmetric, zeropp::bfloat16>());
    kernels::check_tensors<zeropp::bfloat16>(block_integer<3, 16>());
    kernels::check_tensors<zeropp::bfloat16>(block_integer<2, 64>());
    kernels::check_sums(block_integer<3, 32>(), block_integer<7, 32>());
    kernels::check_sums(block_integer<7, 32>(), block_integer<6, 16>());
}

TEST_CASE("kernels: blocks of one thread, and of more than a thread holds", "[kernels]") {
    kernels::check_tensors<zeropp::bfloat16>(block_integer<3, 8>());
    kernels::check_tensors<float>(block_integer<8, 16>());
    kernels::check_tensors<zeropp::bfloat16>(block_integer<4, 65536>());
}
