/// \file
/// The bytes that a plan predicts are those that `counting` counts: reduce-scatters in any number of chunks.

#include "plan/counted.hpp"

#include <zeropp/core/element.hpp>
#include <zeropp/quantizer/block_integer.hpp>
#include <zeropp/quantizer/cast_to.hpp>

using namespace plan_test;

TEST_CASE("planned volume: reduce-scatters send it, of float in 8 and 4 bits") {
    check_reduce_scatters<float>(zeropp::block_integer<8, 256>{}, zeropp::block_integer<4, 128>{});
}

TEST_CASE("planned volume: reduce-scatters send it, of bfloat16 as it is") {
    check_reduce_scatters<zeropp::bfloat16>(zeropp::cast_to<zeropp::bfloat16>{}, zeropp::cast_to<zeropp::bfloat16>{});
}
