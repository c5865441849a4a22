/// Few launches of every kernel, for compute-sanitizer, which slows them down a hundredfold.

#include "kernels/abilities_against_host.hpp"

#include <zeropp/cuda.cuh>

namespace kernels = zeropp_test::kernels;
using namespace zeropp;

TEST_CASE("kernels: a small slice", "[gpu][slice]") {
    kernels::check_tensors<bfloat16>(block_integer<8, 256>(), {9, 257, 3001});
    kernels::check_tensors<float>(block_integer<4, 128, signed_absmax, half>(), {9, 129, 3001});
    kernels::check_tensors<half>(block_integer<6, 128>(), {9, 129, 3001});
    kernels::check_tensors<half>(block_integer<8, 8192>(), {9, 20'001});
    kernels::check_sums(block_integer<8, 256>(), block_integer<4, 128>(), {9, 257, 3001});
    kernels::check_tensors<bfloat16>(hadamard<block_integer<4, 128>>(), {9, 129, 3001});
    kernels::check_encodings<bfloat16>(mxfp4(), {9, 129, 3001});
}
