#pragma once
/// \file
/// What every header of the library assumes of the compiler.

#include <cfloat>

/// Marks arithmetic that runs in host code and inside CUDA kernels alike.
#if defined(__CUDACC__)
#define ZEROPP_HOST_DEVICE __host__ __device__
#else
#define ZEROPP_HOST_DEVICE
#endif

// The arithmetic is specified to the bit, and NaN must survive it. -ffast-math and each of its parts withdraw that
// without a word, so they are refused here rather than noticed in a loss curve. GCC has one macro that is 0 for any of
// them. Clang has none for some: `ieee_arithmetic` in core/math.hpp finds these at run time.
#if defined(__FAST_MATH__) || (defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__) ||                               \
    (defined(__GCC_IEC_559) && __GCC_IEC_559 == 0)
#error "zeropp needs IEEE arithmetic: compile the files that include it without -ffast-math and the flags it stands for"
#endif

static_assert(FLT_EVAL_METHOD == 0,
              "zeropp needs float arithmetic without excess precision (on 32-bit x86: -msse2 -mfpmath=sse)");
