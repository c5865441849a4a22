// expect: block_integer: BlockSize must be a power of two from 8 to 65536
#include <zeropp/quantizer/block_integer.hpp>

constexpr int bits = zeropp::block_integer<8, 100>::code_bits;
