// expect: zeropp needs IEEE arithmetic
// flags: -ffinite-math-only
#include <zeropp/core/math.hpp>
