// expect: zeropp needs IEEE arithmetic
// flags: -ffast-math
#include <zeropp/core/config.hpp>
