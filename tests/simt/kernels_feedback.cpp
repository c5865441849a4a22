#include "simt/abilities_against_host.hpp"

#include <zeropp/codec/cuda/message_values.cuh>
#include <zeropp/quantizer/block_float.hpp>
#include <zeropp/quantizer/hadamard.hpp>
#include <zeropp/quantizer/scale_search.hpp>

namespace simt = zeropp_test::simt;
using zeropp::block_integer;
using zeropp::hadamard;
using zeropp::lossless;

TEST_CASE("kernels: error feedback, whatever residuals are stored as", "[simt][kernels]") {
    simt::check_feedback<zeropp::bfloat16>(block_integer<8, 128>(), block_integer<4, 128>());
    simt::check_feedback<float>(lossless<float>(), hadamard<block_integer<4, 32>>());
    simt::check_feedback<zeropp::half>(lossless<zeropp::bfloat16>(), zeropp::nvfp4());
}

TEST_CASE("kernels: error feedback in blocks of more than a warp, and than a team holds", "[simt][kernels]") {
    simt::check_feedback<float>(block_integer<8, 2048>(), hadamard<block_integer<4, 2048>, 256>());
    simt::check_feedback<zeropp::bfloat16>(block_integer<8, 65536>(), block_integer<4, 65536>());
}

TEST_CASE("kernels: error feedback of sums", "[simt][kernels]") {
    simt::check_feedback_of_sums(hadamard<block_integer<8, 256>, 128>(), block_integer<8, 64>(),
                                 zeropp::scale_search<hadamard<block_integer<4, 64>>, 3>());
}
