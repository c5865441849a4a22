#include "kernels/codec_against_host.hpp"

#include <zeropp/codec/cuda/rotation.cuh>
#include <zeropp/quantizer/hadamard.hpp>
#include <zeropp/quantizer/stochastic.hpp>

namespace kernels = zeropp_test::kernels;
using zeropp::block_integer;
using zeropp::hadamard;

TEST_CASE("kernels: rotated elements, in windows of one lane to a whole warp", "[kernels]") {
    kernels::check_tensors<zeropp::bfloat16>(hadamard<block_integer<4, 64>, 8>());
    kernels::check_tensors<float>(hadamard<block_integer<4, 128>>());
    kernels::check_tensors<zeropp::half>(hadamard<block_integer<8, 256>, 256>());
    kernels::check_tensors<zeropp::bfloat16>(
        hadamard<block_integer<4, 128, zeropp::signed_absmax, zeropp::bfloat16>>());
    kernels::check_tensors<zeropp::bfloat16>(hadamard<block_integer<4, 2048>, 256>());
}

TEST_CASE("kernels: rotated tensors of more tiles for a thread block than it loads ahead", "[kernels]") {
    const kernels::owned_stream stream(1);
    const auto where = kernels::layouts(11 * 8192 + 2, 128).front();
    // The first tensor begins between words, the others, of each kind of numbers, on 16-byte boundaries.
    for (const std::size_t n : {0u, 6u, 7u, 8u}) {
        kernels::check_encode<zeropp::bfloat16>(
            stream.exec(), hadamard<block_integer<4, 128, zeropp::signed_absmax, zeropp::bfloat16>>(), where, {n});
    }
    REQUIRE(kernels::device_fault() == "");
}

TEST_CASE("kernels: sums of rotated elements, in windows of all sorts", "[kernels]") {
    // Windows of the source that reach beyond the target's blocks, and blocks of more than a warp.
    kernels::check_sums(hadamard<block_integer<8, 256>, 256>(), hadamard<block_integer<4, 128>>());
    kernels::check_sums(hadamard<block_integer<4, 128>, 128>(), hadamard<block_integer<4, 2048>, 256>());
    // Windows of one size: the sum stays rotated.
    kernels::check_sums(hadamard<block_integer<8, 256>, 8>(),
                        zeropp::stochastic<hadamard<block_integer<4, 64>, 8>>(2, 3));
    // Blocks that no team can hold.
    kernels::check_sums(hadamard<block_integer<8, 32>, 8>(), hadamard<block_integer<4, 16384>, 256>());
}
