#include "gpu/codec_against_host.cuh"

namespace gpu = zeropp_test::gpu;
using namespace zeropp;

TEST_CASE("kernels: blocks of 8-bit integers", "[gpu][kernels]") {
    gpu::check_tensors<bfloat16>(block_integer<8, 256>());
    gpu::check_tensors<half>(block_integer<8, 256>());
    gpu::check_tensors<float>(block_integer<8, 256>());
    gpu::check_tensors<bfloat16>(block_integer<8, 2048>());
    gpu::check_tensors<float>(block_integer<8, 256, asymmetric, half>());
}
