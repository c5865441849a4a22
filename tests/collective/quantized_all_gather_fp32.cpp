/// \file
/// quantized_all_gather of floats: every rank holds the reference's bits, for every kind of quantizer.

#include "collective/all_gather_matrix.hpp"

#include <zeropp/quantizer/block_integer.hpp>
#include <zeropp/quantizer/cast_to.hpp>

using namespace collective_test;

TEST_CASE("all-gather of fp32: bits of the reference, quantizers") {
    check_all_gather<float>(zeropp::cast_to<float>{}, 0);
    check_all_gather<float>(zeropp::cast_to<zeropp::bfloat16>{}, 1);
    check_all_gather<float>(zeropp::block_integer<8, 256>{}, 2);
    check_all_gather<float>(zeropp::block_integer<4, 128, zeropp::signed_absmax, zeropp::half>{}, 3);
    check_all_gather<float>(zeropp::block_integer<4, 128, zeropp::asymmetric>{}, 4);
    check_all_gather<float>(zeropp::block_integer<6, 128>{}, 5);
    check_all_gather<float>(zeropp::block_integer<5, 64, zeropp::symmetric, zeropp::bfloat16>{}, 6);
    check_all_gather<float>(zeropp::block_integer<2, 8>{}, 7);
}
