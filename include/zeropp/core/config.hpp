#pragma once
/// \file
/// Requirements of every header on the compiler, and `none`.

#include <cfloat>

/// Marks functions for both host code and CUDA kernels.
#if defined(__CUDACC__)
#define ZEROPP_HOST_DEVICE __host__ __device__
#else
#define ZEROPP_HOST_DEVICE
#endif

// Arithmetic is specified to the bit, and NaN must survive it. -ffast-math and each of its parts break both silently,
// so they stop the build. GCC defines one macro that is 0 under any of them. Clang has none for some; `ieee_arithmetic`
// in core/math.hpp detects these at run time.
#if defined(__FAST_MATH__) || (defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__) ||                               \
    (defined(__GCC_IEC_559) && __GCC_IEC_559 == 0)
#error "zeropp needs IEEE arithmetic: compile the files that include it without -ffast-math and the flags it stands for"
#endif

namespace zeropp {

/// In place of an optional part of a call: scratch memory, residuals, or a quantizer.
struct none {};

}  // namespace zeropp

static_assert(FLT_EVAL_METHOD == 0,
              "zeropp needs float arithmetic without excess precision (on 32-bit x86: -msse2 -mfpmath=sse)");
