#include "simt/codec_against_host.hpp"

#include <zeropp/codec/cuda/decode_kernel.cuh>
#include <zeropp/codec/cuda/encode_kernel.cuh>

namespace simt = zeropp_test::simt;
using zeropp::block_integer;

TEST_CASE("kernels: int8:256 on every element type", "[simt][kernels]") {
    constexpr block_integer<8, 256> q;
    simt::check_tensors<float>(q);
    simt::check_tensors<zeropp::half>(q);
    simt::check_tensors<zeropp::bfloat16>(q);
    simt::check_tensors<simt::three_bytes>(q);
    simt::check_tensors<simt::eight_bytes>(q);
}

TEST_CASE("kernels: int8 in large blocks", "[simt][kernels]") {
    simt::check_tensors<zeropp::bfloat16>(block_integer<8, 2048>());
    simt::check_tensors<float>(block_integer<8, 4096, zeropp::asymmetric>());
}
