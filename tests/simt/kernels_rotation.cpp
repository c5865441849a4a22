#include "simt/codec_against_host.hpp"

#include <zeropp/codec/cuda/rotation.cuh>
#include <zeropp/quantizer/hadamard.hpp>

namespace simt = zeropp_test::simt;
using zeropp::block_integer;
using zeropp::hadamard;

TEST_CASE("kernels: rotated elements, in windows of one lane to a whole warp", "[simt][kernels]") {
    simt::check_tensors<zeropp::bfloat16>(hadamard<block_integer<4, 64>, 8>());
    simt::check_tensors<float>(hadamard<block_integer<4, 128>>());
    simt::check_tensors<zeropp::half>(hadamard<block_integer<8, 256>, 256>());
}

TEST_CASE("kernels: sums of rotated elements, in windows of all sorts", "[simt][kernels]") {
    // Windows of the source that reach beyond the target's blocks, and blocks of more than a warp.
    simt::check_sums(hadamard<block_integer<8, 256>, 256>(), hadamard<block_integer<4, 128>>());
    simt::check_sums(hadamard<block_integer<4, 128>, 128>(), hadamard<block_integer<4, 2048>, 256>());
    // Blocks that no team can hold.
    simt::check_sums(hadamard<block_integer<8, 32>, 8>(), hadamard<block_integer<4, 65536>, 256>());
}
