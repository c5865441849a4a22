/// \file
/// The bytes that a plan predicts are those that `counting` counts: all-reduces on the route that their size takes, in
/// as many chunks as a pipeline takes.

#include "plan/counted.hpp"

#include <zeropp/quantizer/block_integer.hpp>

using namespace plan_test;

TEST_CASE("planned volume: all-reduces send it, small ones and large ones") {
    check_all_reduces<float>(zeropp::block_integer<8, 256>{}, zeropp::block_integer<4, 128>{});
}
