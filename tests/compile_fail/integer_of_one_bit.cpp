// expect: block_integer: Bits must be from 2 to 8
#include <zeropp/quantizer/block_integer.hpp>

constexpr int bits = zeropp::block_integer<1, 128>::code_bits;
