// expect: stochastic: the base quantizer must encode with noise, as block_integer does
#include <zeropp/quantizer/lossless.hpp>
#include <zeropp/quantizer/stochastic.hpp>

constexpr int bits = zeropp::stochastic<zeropp::lossless<zeropp::half>>::code_bits;
