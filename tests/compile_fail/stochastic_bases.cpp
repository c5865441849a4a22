// expect: failed.*stochastic: the base quantizer rounds at random already.*failed.*must encode with noise, as block_int
#include <zeropp/quantizer/block_integer.hpp>
#include <zeropp/quantizer/cast_to.hpp>
#include <zeropp/quantizer/stochastic.hpp>

constexpr int twice = zeropp::stochastic<zeropp::stochastic<zeropp::block_integer<4, 64>>>::code_bits;
constexpr int exact = zeropp::stochastic<zeropp::cast_to<zeropp::half>>::code_bits;
