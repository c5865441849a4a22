// expect: scale_type<Scale>. .with Scale = double|.double. does not satisfy .scale_type
#include <zeropp/quantizer/block_integer.hpp>

constexpr int bits = zeropp::block_integer<8, 128, zeropp::symmetric, double>::code_bits;
