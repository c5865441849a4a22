#include "gpu/codec_against_host.cuh"

namespace gpu = zeropp_test::gpu;
using namespace zeropp;

TEST_CASE("kernels: sums from one quantizer to another", "[gpu][kernels]") {
    gpu::check_sums(block_integer<8, 256>(), block_integer<4, 128>());
    gpu::check_sums(block_integer<4, 128>(), block_integer<4, 128>());
    gpu::check_sums(block_integer<8, 2048>(), block_integer<4, 128, asymmetric, half>());
    gpu::check_sums(block_integer<6, 128>(), block_integer<4, 2048>());
}

// Few launches of every kernel: what compute-sanitizer, which slows them down a hundredfold, is given.
TEST_CASE("kernels: a small slice", "[gpu][slice]") {
    gpu::check_tensors<bfloat16>(block_integer<8, 256>(), {9, 257, 3001});
    gpu::check_tensors<float>(block_integer<4, 128, signed_absmax, half>(), {9, 129, 3001});
    gpu::check_tensors<half>(block_integer<6, 128>(), {9, 129, 3001});
    gpu::check_tensors<half>(block_integer<8, 8192>(), {9, 20'001});
    gpu::check_sums(block_integer<8, 256>(), block_integer<4, 128>(), {9, 257, 3001});
}
