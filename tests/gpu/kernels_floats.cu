#include "gpu/codec_against_host.cuh"

#include <zeropp/quantizer/block_float.hpp>

namespace gpu = zeropp_test::gpu;
using namespace zeropp;

TEST_CASE("kernels: blocks of small floats", "[gpu][kernels]") {
    gpu::check_tensors<bfloat16>(block_float<e4m3, 128>());
    gpu::check_tensors<float>(block_float<e5m2, 128>());
    gpu::check_tensors<bfloat16>(mxfp8<e4m3>());
    gpu::check_tensors<bfloat16>(mxfp8<e5m2>());
    gpu::check_tensors<bfloat16>(mxfp6<e2m3>());
    gpu::check_tensors<bfloat16>(mxfp6<e3m2>());
    gpu::check_tensors<bfloat16>(mxfp4());
}
