// expect: failed.*r: BlockSize must.*failed.*8 to 65536.*failed.*8 to 65536.*failed.*r: Bits must.*failed.*2 to 8
#include <zeropp/quantizer/block_integer.hpp>

constexpr int not_a_power_of_two = zeropp::block_integer<8, 100>::code_bits;
constexpr int small_block = zeropp::block_integer<8, 4>::code_bits;
constexpr int large_block = zeropp::block_integer<8, 131072>::code_bits;
constexpr int one_bit = zeropp::block_integer<1, 128>::code_bits;
constexpr int nine_bits = zeropp::block_integer<9, 128>::code_bits;
