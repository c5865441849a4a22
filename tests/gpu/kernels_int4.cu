#include "gpu/codec_against_host.cuh"

namespace gpu = zeropp_test::gpu;
using namespace zeropp;

TEST_CASE("kernels: blocks of 4-bit integers", "[gpu][kernels]") {
    gpu::check_tensors<bfloat16>(block_integer<4, 128>());
    gpu::check_tensors<half>(block_integer<4, 128>());
    gpu::check_tensors<float>(block_integer<4, 128>());
    gpu::check_tensors<bfloat16>(block_integer<4, 2048>());
    gpu::check_tensors<float>(block_integer<4, 128, signed_absmax, half>());
}
