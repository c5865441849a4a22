/// \file
/// quantized_all_gather of half, bfloat16 and a user's own element type.

#include "collective/all_gather_matrix.hpp"

#include <zeropp/quantizer/block_integer.hpp>
#include <zeropp/quantizer/cast_to.hpp>

using namespace collective_test;

TEST_CASE("all-gather of fp16: bits of the reference") {
    check_all_gather<zeropp::half>(zeropp::cast_to<zeropp::half>{}, 8);
    check_all_gather<zeropp::half>(zeropp::block_integer<8, 256>{}, 9);
    check_all_gather<zeropp::half>(zeropp::block_integer<4, 128, zeropp::signed_absmax, zeropp::half>{}, 0);
}

TEST_CASE("all-gather of bf16: bits of the reference") {
    check_all_gather<zeropp::bfloat16>(zeropp::block_integer<6, 128>{}, 1);
    check_all_gather<zeropp::bfloat16>(zeropp::block_integer<4, 128, zeropp::asymmetric, zeropp::half>{}, 2);
}

TEST_CASE("all-gather of a user's own element type: bits of the reference") {
    check_all_gather<float24>(zeropp::cast_to<float>{}, 3);
    check_all_gather<float24>(zeropp::block_integer<5, 64>{}, 4);
    check_all_gather<float24>(zeropp::block_integer<2, 8>{}, 5);
}
