// expect: hadamard: Size must be a power of two from 8 to 256, not above the block's size
#include <zeropp/quantizer/block_integer.hpp>
#include <zeropp/quantizer/hadamard.hpp>

constexpr int size = zeropp::hadamard<zeropp::block_integer<4, 64>, 128>::hadamard_size;
