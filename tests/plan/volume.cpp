/// \file
/// The bytes that a plan predicts are those that `counting` counts.

#include "plan/counted.hpp"

#include <zeropp/core/element.hpp>
#include <zeropp/quantizer/block_integer.hpp>
#include <zeropp/quantizer/cast_to.hpp>
#include <zeropp/topology/three_level.hpp>

using namespace plan_test;

TEST_CASE("planned volume: all-gathers send it, of float in 8 bits") {
    check_all_gathers<float>(zeropp::block_integer<8, 256>{});
}

TEST_CASE("planned volume: all-gathers send it, of bfloat16 as it is") {
    check_all_gathers<zeropp::bfloat16>(zeropp::cast_to<zeropp::bfloat16>{});
}

TEST_CASE("planned volume: reduce-scatters send it, of float in 8 and 4 bits") {
    check_reduce_scatters<float>(zeropp::block_integer<8, 256>{}, zeropp::block_integer<4, 128>{});
}

TEST_CASE("planned volume: reduce-scatters send it, of bfloat16 as it is") {
    check_reduce_scatters<zeropp::bfloat16>(zeropp::cast_to<zeropp::bfloat16>{}, zeropp::cast_to<zeropp::bfloat16>{});
}

TEST_CASE("planned volume: all-reduces send it, small ones and large ones") {
    check_all_reduces<float>(zeropp::block_integer<8, 256>{}, zeropp::block_integer<4, 128>{});
}

TEST_CASE("planned volume: secondary gathers send it, of float in 8 bits") {
    check_secondary_gathers<float>(zeropp::block_integer<8, 256>{});
}

TEST_CASE("planned volume: secondary gathers send it, of bfloat16 as it is") {
    check_secondary_gathers<zeropp::bfloat16>(zeropp::cast_to<zeropp::bfloat16>{});
}

TEST_CASE("planned volume: updates send it, differences of 4 bits across and what nodes keep in 8 inside") {
    check_updates<float>(zeropp::block_integer<4, 128>{}, zeropp::cast_to<float>{}, zeropp::block_integer<8, 256>{});
}

TEST_CASE("planned volume: updates send it, inside as it is kept") {
    constexpr zeropp::cast_to<zeropp::bfloat16> bf16;
    check_updates<zeropp::bfloat16>(zeropp::block_integer<4, 128>{}, bf16, bf16);
}

TEST_CASE("planned volume: a group that neither divides the node nor holds whole ones is refused, with the reason") {
    const zeropp::two_level ranks(2, 4);
    const zeropp::wire_format bf16 = zeropp::wire_format_of(zeropp::cast_to<zeropp::bfloat16>{});
    for (const int k : {-2, 0, 3, 5, 6, 16}) {
        CHECK_THROWS_WITH(zeropp::secondary_gather_volume(ranks, k, bf16, 100),
                          "secondary group size: expected a divisor of the 8 ranks that divides the node's 4 or is a "
                          "multiple of them, given " +
                              std::to_string(k));
    }
    // Two of three nodes of one rank: some groups would reach into the next site.
    CHECK_THROWS_WITH(zeropp::secondary_gather_volume(zeropp::three_level(2, 3, 1), 2, bf16, 100),
                      "secondary group size: expected a divisor of the 6 ranks that divides the node's 1 or is a "
                      "multiple of them, and the site's 3 alike, given 2");
    CHECK(zeropp::secondary_gather_volume(zeropp::three_level(2, 3, 2), 6, bf16, 600) ==
          zeropp::volume{.intra_node = bf16.bytes(100), .inter_node = 4 * bf16.bytes(100)});
    CHECK(zeropp::secondary_gather_volume(zeropp::three_level(2, 3, 2), 12, bf16, 1200) ==
          zeropp::volume{bf16.bytes(100), 4 * bf16.bytes(100), 6 * bf16.bytes(100)});
}
