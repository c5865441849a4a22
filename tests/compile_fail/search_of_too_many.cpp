// expect: scale_search: Candidates must be from 2 to 32
#include <zeropp/quantizer/block_integer.hpp>
#include <zeropp/quantizer/scale_search.hpp>

constexpr int candidates = zeropp::scale_search<zeropp::block_integer<4, 64>, 33>::candidates;
