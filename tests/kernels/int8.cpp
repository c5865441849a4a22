#include "kernels/codec_against_host.hpp"

#include <zeropp/codec/cuda/decode_kernel.cuh>
#include <zeropp/codec/cuda/encode_kernel.cuh>

namespace kernels = zeropp_test::kernels;
using zeropp::block_integer;

TEST_CASE("kernels: int8:256 on every element type", "[kernels]") {
    constexpr block_integer<8, 256> q;
    kernels::check_tensors<float>(q);
    kernels::check_tensors<zeropp::half>(q);
    kernels::check_tensors<zeropp::bfloat16>(q);
    kernels::check_tensors<kernels::three_bytes>(q);
    kernels::check_tensors<kernels::eight_bytes>(q);
}

TEST_CASE("kernels: int8 in large blocks", "[kernels]") {
    kernels::check_tensors<zeropp::bfloat16>(block_integer<8, 2048>());
    kernels::check_tensors<float>(block_integer<8, 4096, zeropp::asymmetric>());
}
