#include "kernels/codec_against_host.hpp"

#include <zeropp/codec/cuda/granule.cuh>

namespace kernels = zeropp_test::kernels;
using zeropp::cast_to;

TEST_CASE("kernels: elements carried as they are", "[kernels]") {
    kernels::check_tensors<float>(cast_to<float>());
    kernels::check_tensors<zeropp::bfloat16>(cast_to<zeropp::bfloat16>());
    kernels::check_tensors<float>(cast_to<zeropp::half>());
    kernels::check_tensors<kernels::three_bytes>(cast_to<float>());
}
