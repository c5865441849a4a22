#include "kernels/codec_against_host.hpp"

#include <zeropp/quantizer/block_float.hpp>

namespace kernels = zeropp_test::kernels;
using zeropp::block_float;

TEST_CASE("kernels: blocks of small floats, whose scale is a number", "[kernels]") {
    kernels::check_tensors<zeropp::bfloat16>(block_float<zeropp::e4m3, 128>());
    kernels::check_tensors<float>(block_float<zeropp::e5m2, 128>());
}

TEST_CASE("kernels: the microscaling formats", "[kernels]") {
    kernels::check_tensors<float>(zeropp::mxfp8<zeropp::e4m3>());
    kernels::check_tensors<zeropp::bfloat16>(zeropp::mxfp8<zeropp::e5m2>());
    kernels::check_tensors<zeropp::bfloat16>(zeropp::mxfp6<zeropp::e2m3>());
    kernels::check_tensors<float>(zeropp::mxfp6<zeropp::e3m2>());
    kernels::check_tensors<zeropp::bfloat16>(zeropp::mxfp4());
}
