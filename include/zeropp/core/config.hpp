#pragma once
/// \file
/// Requirements of every header on the compiler, and `none`, the type of an argument that is left out.

#include <cfloat>

/// Attributes of a function that host code and CUDA kernels call; empty if the compiler is not one of CUDA.
#if defined(__CUDACC__)
#define ZEROPP_HOST_DEVICE __host__ __device__
#else
#define ZEROPP_HOST_DEVICE
#endif

// The library specifies its arithmetic to the bit, and NaN must survive. -ffast-math, and each flag that it implies,
// silently changes bits or loses NaN, so it stops the build. Under any such flag, GCC defines __GCC_IEC_559 as 0.
// Clang has no macro for some of these flags; the function `ieee_arithmetic` (core/math.hpp) detects them at run time.
#if defined(__FAST_MATH__) || (defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__) ||                               \
    (defined(__GCC_IEC_559) && __GCC_IEC_559 == 0)
#error "zeropp needs IEEE arithmetic: compile the files that include it without -ffast-math and the flags it stands for"
#endif

namespace zeropp {

/// Empty type of an optional argument that a caller leaves out: scratch memory, residuals, or tensors to gather.
struct none {};

}  // namespace zeropp

static_assert(FLT_EVAL_METHOD == 0,
              "zeropp needs float arithmetic without excess precision (on 32-bit x86: -msse2 -mfpmath=sse)");
