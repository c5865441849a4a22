// expect: stochastic: the base quantizer rounds at random already
#include <zeropp/quantizer/block_integer.hpp>
#include <zeropp/quantizer/stochastic.hpp>

constexpr int bits = zeropp::stochastic<zeropp::stochastic<zeropp::block_integer<4, 64>>>::code_bits;
