// expect: stochastic: the base quantizer must encode with noise, as block_integer does
#include <zeropp/quantizer/cast_to.hpp>
#include <zeropp/quantizer/stochastic.hpp>

constexpr int bits = zeropp::stochastic<zeropp::cast_to<zeropp::half>>::code_bits;
