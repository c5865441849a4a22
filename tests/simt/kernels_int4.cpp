#include "simt/codec_against_host.hpp"

#include <zeropp/codec/cuda/granule_codec.cuh>

namespace simt = zeropp_test::simt;
using zeropp::block_integer;

TEST_CASE("kernels: int4:128 on every element type", "[simt][kernels]") {
    constexpr block_integer<4, 128> q;
    simt::check_tensors<float>(q);
    simt::check_tensors<zeropp::half>(q);
    simt::check_tensors<zeropp::bfloat16>(q);
    simt::check_tensors<simt::three_bytes>(q);
}

TEST_CASE("kernels: int4 with other schemes and scales", "[simt][kernels]") {
    simt::check_tensors<zeropp::bfloat16>(block_integer<4, 128, zeropp::signed_absmax, zeropp::half>());
    simt::check_tensors<zeropp::half>(block_integer<4, 128, zeropp::asymmetric, zeropp::half>());
    simt::check_tensors<float>(block_integer<4, 2048>());
}
