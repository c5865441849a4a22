/// \file
/// The bytes that a plan predicts: of exact differences, and of a whole step, the sum of its collectives.

#include "support/catch.hpp"

#include <zeropp/core/element.hpp>
#include <zeropp/layout/exact_differences.hpp>
#include <zeropp/layout/wire_format.hpp>
#include <zeropp/plan/step.hpp>
#include <zeropp/plan/volume.hpp>
#include <zeropp/quantizer/block_integer.hpp>
#include <zeropp/quantizer/cast_to.hpp>
#include <zeropp/topology/two_level.hpp>

#include <array>
#include <cstddef>

TEST_CASE("planned volume: exact differences send as many bytes as their bits, and at most whole messages") {
    const zeropp::two_level ranks(3, 4);
    const zeropp::wire_format bf16 = zeropp::wire_format_of(zeropp::cast_to<zeropp::bfloat16>{});
    const std::size_t n = 1 << 20, shard = (n + 11) / 12;
    const auto exact = [&](double bits) {
        const zeropp::wire_format format{zeropp::format_of<zeropp::exact_differences>, "exact", bits, false};
        return zeropp::update_gather_volume(ranks, format, bf16, n);
    };
    const zeropp::volume whole = zeropp::all_gather_volume(ranks, bf16, n);
    CHECK(exact(2).intra_node == whole.intra_node);
    CHECK(exact(16).inter_node == 2 * zeropp::format_of<zeropp::exact_differences>.bytes(shard));
    CHECK(exact(17) == exact(16));
    CHECK(exact(2).inter_node == exact(16).inter_node / 8);
    CHECK(exact(2).inter_node * 79 < whole.inter_node * 10);
}

TEST_CASE("planned volume: a step is the sum over its tensors and collectives") {
    const zeropp::two_level ranks(3, 4);
    const zeropp::wire_format bf16 = zeropp::wire_format_of(zeropp::cast_to<zeropp::bfloat16>{});
    const zeropp::wire_format int8 = zeropp::wire_format_of(zeropp::block_integer<8, 256>{});
    const zeropp::wire_format int4 = zeropp::wire_format_of(zeropp::block_integer<4, 128>{});
    const std::array<std::size_t, 3> tensors{1000, 77777, 0};

    const zeropp::step_volume zero3 =
        zeropp::volume_of_step(ranks, tensors, {.weights = bf16, .gradients = {bf16, bf16}});
    zeropp::volume gathers, reduced, from_secondary, quantized;
    for (const std::size_t n : tensors) {
        gathers += zeropp::all_gather_volume(ranks, bf16, n);
        reduced += zeropp::reduce_scatter_volume(ranks, {int8, int4}, n, 3);
        from_secondary += zeropp::secondary_gather_volume(ranks, 2, int8, n);
        quantized += zeropp::all_gather_volume(ranks, int8, n);
    }
    CHECK(zero3.forward == gathers);
    CHECK(zero3.backward == gathers);

    const zeropp::step_volume all = zeropp::volume_of_step(
        ranks, tensors,
        {.weights = int8, .gradients = {int8, int4}, .secondary = zeropp::secondary_options{2, int8}, .chunks = 3});
    CHECK(all.forward == quantized);
    CHECK(all.backward == from_secondary);
    CHECK(all.gradients == reduced);
    CHECK(all.total().inter_node == quantized.inter_node + from_secondary.inter_node + reduced.inter_node);
    CHECK(from_secondary.inter_node == 0);
}
