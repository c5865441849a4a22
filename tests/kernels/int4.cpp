#include "kernels/codec_against_host.hpp"

#include <zeropp/codec/cuda/granule_codec.cuh>

namespace kernels = zeropp_test::kernels;
using zeropp::block_integer;

TEST_CASE("kernels: int4:128 on every element type", "[kernels]") {
    constexpr block_integer<4, 128> q;
    kernels::check_tensors<float>(q);
    kernels::check_tensors<zeropp::half>(q);
    kernels::check_tensors<zeropp::bfloat16>(q);
    kernels::check_tensors<kernels::three_bytes>(q);
}

TEST_CASE("kernels: int4 with other schemes and scales", "[kernels]") {
    kernels::check_tensors<zeropp::bfloat16>(block_integer<4, 128, zeropp::signed_absmax, zeropp::half>());
    kernels::check_tensors<zeropp::half>(block_integer<4, 128, zeropp::asymmetric, zeropp::half>());
    kernels::check_tensors<float>(block_integer<4, 2048>());
}
