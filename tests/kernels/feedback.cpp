#include "kernels/abilities_against_host.hpp"

#include <zeropp/codec/cuda/kernel_slices.cuh>
#include <zeropp/codec/cuda/message_values.cuh>
#include <zeropp/quantizer/block_float.hpp>
#include <zeropp/quantizer/hadamard.hpp>
#include <zeropp/quantizer/scale_search.hpp>

#include <cstddef>
#include <numeric>
#include <type_traits>
#include <vector>

namespace kernels = zeropp_test::kernels;
using zeropp::block_integer;
using zeropp::cast_to;
using zeropp::hadamard;

TEST_CASE("kernels: error feedback, whatever residuals are stored as", "[kernels]") {
    kernels::check_feedback<zeropp::bfloat16>(block_integer<8, 128>(), block_integer<4, 128>());
    kernels::check_feedback<float>(cast_to<float>(), hadamard<block_integer<4, 32>>());
    kernels::check_feedback<zeropp::half>(cast_to<zeropp::bfloat16>(), zeropp::nvfp4());
}

// Two slots have no rank, as on nodes of unequal size.
TEST_CASE("kernels: tables of more slots than a launch takes", "[kernels]") {
    constexpr int slots = 2 * zeropp::detail::most_tabled_slots + 3;
    std::vector<int> ranks(slots);
    std::iota(ranks.rbegin(), ranks.rend(), 0);
    const kernels::owned_stream stream(3);
    const auto check = [&](const auto& storage, const auto& q, std::size_t n, std::size_t variation) {
        const zeropp::partition part(n, slots - 2);
        const kernels::layout l{"slots", {part, {slots, 0, 0, ranks.data()}, 0, part.slice_size(), 0, slots}};
        const kernels::variation v{variation};
        INFO(n << " elements, variation " << variation);
        const auto elements = kernels::tensor<zeropp::bfloat16>(n, 0, v.salt());
        const kernels::device_array<zeropp::bfloat16> in(elements);
        kernels::check_residuals(stream.exec(), storage, q, l, v,
                                 [&]<class Codec>(Codec, const auto& on, std::byte* messages, const auto& memory) {
                                     const bool host = std::is_same_v<Codec, kernels::on_host>;
                                     Codec::write(on, q, host ? elements.data() : in.data(), l.where, messages, memory);
                                 });
        kernels::check_reduce_decode<zeropp::bfloat16>(stream.exec(), q, l, v);
    };
    for (std::size_t variation = 0; variation != 6; ++variation) {
        check(block_integer<8, 128>(), block_integer<4, 128>(), 5003, variation);
        check(cast_to<zeropp::bfloat16>(), zeropp::nvfp4(), 2005, variation);
    }
    REQUIRE(kernels::device_fault() == "");
}

TEST_CASE("kernels: error feedback in blocks of more than a warp, and than a team holds", "[kernels]") {
    kernels::check_feedback<float>(block_integer<8, 2048>(), hadamard<block_integer<4, 2048>, 256>());
    kernels::check_feedback<zeropp::bfloat16>(block_integer<8, 65536>(), block_integer<4, 65536>());
}

TEST_CASE("kernels: error feedback of sums", "[kernels]") {
    kernels::check_feedback_of_sums(hadamard<block_integer<8, 256>>(), block_integer<8, 64>(),
                                    zeropp::scale_search<hadamard<block_integer<4, 64>>, 3>());
}

TEST_CASE("kernels: error feedback of differences", "[kernels]") {
    kernels::check_feedback_of_differences<zeropp::bfloat16, zeropp::bfloat16>(block_integer<8, 128>(),
                                                                               block_integer<4, 128>());
    kernels::check_feedback_of_differences<float, zeropp::bfloat16>(cast_to<float>(),
                                                                    hadamard<block_integer<4, 128>>());
}
