#include "kernels/abilities_against_host.hpp"

#include <zeropp/codec/cuda/message_values.cuh>
#include <zeropp/quantizer/block_float.hpp>
#include <zeropp/quantizer/hadamard.hpp>

namespace kernels = zeropp_test::kernels;
using zeropp::block_integer;
using zeropp::cast_to;
using zeropp::hadamard;

TEST_CASE("kernels: error feedback, whatever residuals are stored as", "[kernels]") {
    kernels::check_feedback<zeropp::bfloat16>(block_integer<8, 128>(), block_integer<4, 128>());
    kernels::check_feedback<float>(cast_to<float>(), hadamard<block_integer<4, 32>>());
    kernels::check_feedback<zeropp::half>(cast_to<zeropp::bfloat16>(), zeropp::mxfp4());
}

TEST_CASE("kernels: error feedback in blocks of more than a warp, and than a team holds", "[kernels]") {
    kernels::check_feedback<float>(block_integer<8, 2048>(), hadamard<block_integer<4, 2048>, 256>());
    kernels::check_feedback<zeropp::bfloat16>(block_integer<8, 65536>(), block_integer<4, 65536>());
}

TEST_CASE("kernels: error feedback of sums", "[kernels]") {
    kernels::check_feedback_of_sums(hadamard<block_integer<8, 256>>(), block_integer<8, 64>(),
                                    hadamard<block_integer<4, 64>>());
}

TEST_CASE("kernels: error feedback of differences", "[kernels]") {
    kernels::check_feedback_of_differences<zeropp::bfloat16, zeropp::bfloat16>(block_integer<8, 128>(),
                                                                               block_integer<4, 128>());
    kernels::check_feedback_of_differences<float, zeropp::bfloat16>(cast_to<float>(),
                                                                    hadamard<block_integer<4, 128>>());
}
