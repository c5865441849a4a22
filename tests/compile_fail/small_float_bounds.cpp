// expect: failed.*small_float: from 4 to 8 bits.*failed.*from 4 to 8.*failed.*from 4 to 8.*failed.*LargestCode must be
#include <zeropp/quantizer/small_float.hpp>

constexpr int one_bit_of_exponent = zeropp::small_float<1, 3, 0x0f>::bits;
constexpr int no_mantissa = zeropp::small_float<4, 0, 0x0f>::bits;
constexpr int nine_bits = zeropp::small_float<5, 3, 0xff>::bits;
constexpr int with_sign = zeropp::small_float<4, 3, 0xfe>::bits;
