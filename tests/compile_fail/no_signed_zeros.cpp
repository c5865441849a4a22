// expect: zeropp needs IEEE arithmetic
// flags: -fno-signed-zeros
#include <zeropp/core/math.hpp>
