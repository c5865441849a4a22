#pragma once
/// \file
/// Test doubles of the cuBLAS entry points that zero3_gpt uses, over OpenBLAS and the emulated device. Like cuBLAS they
/// only enqueue; stricter than cuBLAS, they refuse matrices that do not lie in device memory.

#include <cublas_v2.h>

namespace zeropp_test::simt {

/// The next product does nothing and returns `status`.
void fail_next_product(cublasStatus_t status);

/// cuBLAS handles that exist.
int live_cublas_handles();

}  // namespace zeropp_test::simt
