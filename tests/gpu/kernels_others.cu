#include "gpu/codec_against_host.cuh"

namespace gpu = zeropp_test::gpu;
using namespace zeropp;

TEST_CASE("kernels: 6 bits, odd widths and the smallest and largest blocks", "[gpu][kernels]") {
    gpu::check_tensors<bfloat16>(block_integer<6, 128>());
    gpu::check_tensors<half>(block_integer<6, 128>());
    gpu::check_tensors<float>(block_integer<6, 128>());
    gpu::check_tensors<half>(block_integer<3, 8, signed_absmax>());
    gpu::check_tensors<bfloat16>(block_integer<5, 64, asymmetric, bfloat16>());
    gpu::check_tensors<float>(block_integer<7, 8192>());
}

TEST_CASE("kernels: elements as they are", "[gpu][kernels]") {
    gpu::check_tensors<float>(lossless<float>());
    gpu::check_tensors<bfloat16>(lossless<bfloat16>());
    gpu::check_tensors<half>(lossless<half>());
}
