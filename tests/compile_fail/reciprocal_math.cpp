// expect: zeropp needs IEEE arithmetic
// flags: -freciprocal-math
#include <zeropp/core/math.hpp>
