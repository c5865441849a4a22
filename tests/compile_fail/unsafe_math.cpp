// expect: zeropp needs IEEE arithmetic
// flags: -funsafe-math-optimizations
#include <zeropp/core/math.hpp>
