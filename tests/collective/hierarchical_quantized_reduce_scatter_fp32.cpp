/// \file
/// hierarchical_quantized_reduce_scatter of floats: the reference's bits, equal and different quantizers on the hops.

#include "collective/reduce_scatter_matrix.hpp"

#include <zeropp/quantizer/block_integer.hpp>
#include <zeropp/quantizer/cast_to.hpp>

using namespace collective_test;

TEST_CASE("reduce-scatter of fp32: bits of the reference, one quantizer") {
    check_reduce_scatter<float>(zeropp::cast_to<float>{}, zeropp::cast_to<float>{}, 0);
    check_reduce_scatter<float>(zeropp::block_integer<5, 64>{}, zeropp::block_integer<5, 64>{}, 1);
}

TEST_CASE("reduce-scatter of fp32: bits of the reference, larger blocks inside") {
    check_reduce_scatter<float>(zeropp::block_integer<8, 256>{},
                                zeropp::block_integer<4, 128, zeropp::signed_absmax, zeropp::half>{}, 2);
}

TEST_CASE("reduce-scatter of fp32: bits of the reference, larger blocks across") {
    check_reduce_scatter<float>(zeropp::block_integer<2, 8>{}, zeropp::block_integer<6, 128>{}, 3);
    check_reduce_scatter<float>(zeropp::cast_to<zeropp::bfloat16>{},
                                zeropp::block_integer<4, 128, zeropp::asymmetric>{}, 4);
}
