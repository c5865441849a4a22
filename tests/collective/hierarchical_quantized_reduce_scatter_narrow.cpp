/// \file
/// hierarchical_quantized_reduce_scatter of half, bfloat16 and a user's own element type.

#include "collective/reduce_scatter_matrix.hpp"

#include <zeropp/quantizer/block_integer.hpp>
#include <zeropp/quantizer/cast_to.hpp>

using namespace collective_test;

TEST_CASE("reduce-scatter of fp16: bits of the reference") {
    check_reduce_scatter<zeropp::half>(zeropp::block_integer<4, 128, zeropp::asymmetric, zeropp::half>{},
                                       zeropp::block_integer<8, 256>{}, 5);
    check_reduce_scatter<zeropp::half>(zeropp::cast_to<float>{}, zeropp::cast_to<zeropp::half>{}, 6);
}

TEST_CASE("reduce-scatter of bf16: bits of the reference") {
    check_reduce_scatter<zeropp::bfloat16>(zeropp::block_integer<8, 256>{}, zeropp::block_integer<5, 64>{}, 7);
}

TEST_CASE("reduce-scatter of a user's own element type: bits of the reference") {
    check_reduce_scatter<float24>(zeropp::block_integer<6, 128>{}, zeropp::cast_to<float>{}, 8);
}
