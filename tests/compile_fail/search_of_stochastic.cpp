// expect: scale_search: the base quantizer must encode elements by value, with parameters that are fitted
#include <zeropp/quantizer/block_integer.hpp>
#include <zeropp/quantizer/scale_search.hpp>
#include <zeropp/quantizer/stochastic.hpp>

constexpr int candidates = zeropp::scale_search<zeropp::stochastic<zeropp::block_integer<4, 64>>>::candidates;
