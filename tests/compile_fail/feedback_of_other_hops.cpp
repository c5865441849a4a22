// expect: error feedback must be for the same quantizers, that of the all-gather phase included
#include <zeropp/zeropp.hpp>

using int8 = zeropp::block_integer<8, 256>;
using int4 = zeropp::block_integer<4, 128>;
using residuals = zeropp::error_feedback<zeropp::hops<int8, int4>, zeropp::residuals_in_int8, zeropp::host_space>;

auto fed_back(residuals& of) { return zeropp::with_error_feedback(zeropp::hops{int8{}, int8{}}, of); }
