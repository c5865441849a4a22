// expect: hadamard: the base quantizer must not be rotated already
#include <zeropp/quantizer/block_integer.hpp>
#include <zeropp/quantizer/hadamard.hpp>

constexpr int size = zeropp::hadamard<zeropp::hadamard<zeropp::block_integer<4, 64>>>::hadamard_size;
