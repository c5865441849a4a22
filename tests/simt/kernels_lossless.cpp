#include "simt/codec_against_host.hpp"

#include <zeropp/codec/cuda/granule.cuh>

namespace simt = zeropp_test::simt;
using zeropp::lossless;

TEST_CASE("kernels: elements carried as they are", "[simt][kernels]") {
    simt::check_tensors<float>(lossless<float>());
    simt::check_tensors<zeropp::bfloat16>(lossless<zeropp::bfloat16>());
    simt::check_tensors<float>(lossless<zeropp::half>());
    simt::check_tensors<simt::three_bytes>(lossless<float>());
}
