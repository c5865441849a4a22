/// \file
/// Planned times against figures worked out by hand.

#include "support/catch.hpp"

#include <zeropp/plan/step.hpp>
#include <zeropp/quantizer/block_integer.hpp>
#include <zeropp/quantizer/cast_to.hpp>
#include <zeropp/topology/flat.hpp>
#include <zeropp/topology/two_level.hpp>

#include <array>
#include <cstddef>

namespace {

const zeropp::wire_format bf16 = zeropp::wire_format_of(zeropp::cast_to<zeropp::bfloat16>{});
/// The same bytes, from a codec.
const zeropp::wire_format coded{{64, bf16.bytes_at}, "coded", 16, false};
/// 3 nodes of 2 ranks, and a tensor whose messages are 16,000 bytes.
const zeropp::two_level ranks(3, 2);
constexpr std::size_t elements = 6 * 8000;
/// 1 MB/s and 1 ms inside; 100 kB/s and 10 ms for a node.
constexpr zeropp::machine slow{{1e6, 1e-3}, {1e5, 1e-2}};

zeropp::machine with_codec(double bytes_per_second) {
    zeropp::machine m = slow;
    m.codec_bytes_per_second = bytes_per_second;
    return m;
}

}  // namespace

TEST_CASE("planned time: an all-gather crosses, then moves inside") {
    const zeropp::collective_time t = zeropp::all_gather_time(slow, ranks, bf16, elements, 2);
    // The node's two ranks share its link: two messages to each of two nodes.
    CHECK(t.inter_node == Approx(2 * 0.01 + 2 * 2 * 0.16));
    CHECK(t.intra_node == Approx(1 * 0.001 + 3 * 0.016));
    CHECK(t.hops == Approx(t.inter_node + t.intra_node));
    CHECK(t.codec == 0);
    // In 5 chunks latencies come with each, and the hops run side by side.
    const zeropp::collective_time cut = zeropp::all_gather_time(slow, ranks, bf16, elements, 2, 5);
    CHECK(cut.inter_node == Approx(5 * 2 * 0.01 + 2 * 2 * 0.16));
    CHECK(cut.intra_node == Approx(5 * 0.001 + 3 * 0.016));
    CHECK(cut.hops == Approx(cut.inter_node + cut.intra_node / 5));
    // Reads a shard and six messages, writes a message and the tensor.
    CHECK(zeropp::all_gather_time(with_codec(1e6), ranks, coded, elements, 2).codec ==
          Approx(0.016 + 0.016 + 6 * 0.016 + 0.096));
    CHECK(zeropp::all_gather_time(with_codec(1e6), ranks, coded, elements, 2).total() ==
          Approx(t.hops + 2 * 0.016 + 2 * 0.096));
}

TEST_CASE("planned time: elements that travel as they are need no codec") {
    const zeropp::machine m = with_codec(1e6);
    CHECK(zeropp::all_gather_time(m, ranks, bf16, elements, 2).codec == 0);
    CHECK(zeropp::secondary_gather_time(m, ranks, {2, bf16}, elements, 2).codec == 0);
    CHECK(zeropp::reduce_scatter_time(m, ranks, {bf16, bf16}, elements, 2).codec == 0);
    CHECK(zeropp::reduce_scatter_time(m, ranks, {bf16, coded}, elements, 2).codec > 0);
    CHECK(zeropp::reduce_scatter_time(m, ranks, {coded, bf16}, elements, 2).codec > 0);
    CHECK(bf16.plain);
    CHECK_FALSE(zeropp::wire_format_of(zeropp::block_integer<8, 256>{}).plain);
}

TEST_CASE("planned time: one node has nothing to send across, and one rank nothing at all") {
    const zeropp::collective_time node = zeropp::all_gather_time(slow, zeropp::flat(6), bf16, elements, 2);
    CHECK(node.inter_node == 0);
    CHECK(node.intra_node == Approx(5 * 0.001 + 5 * 0.016));
    CHECK(zeropp::all_gather_time(slow, zeropp::flat(1), bf16, elements, 2).total() == 0);
    CHECK(zeropp::reduce_scatter_time(slow, zeropp::flat(1), {bf16, bf16}, elements, 2).total() == 0);
    CHECK(zeropp::all_gather_time(slow, ranks, bf16, 0, 2).total() == 0);
    CHECK(zeropp::reduce_scatter_time(slow, ranks, {bf16, bf16}, 0, 2).total() == 0);
}

TEST_CASE("planned time: a secondary gather stays inside, or uses both links at once") {
    const zeropp::collective_time intra_node = zeropp::secondary_gather_time(slow, ranks, {2, bf16}, elements, 2);
    CHECK(intra_node.inter_node == 0);
    CHECK(intra_node.hops == Approx(0.001 + 0.048));
    const zeropp::collective_time wide = zeropp::secondary_gather_time(slow, ranks, {6, bf16}, elements, 2);
    CHECK(wide.intra_node == Approx(0.001 + 0.016));
    CHECK(wide.inter_node == Approx(4 * 0.01 + 2 * 4 * 0.16));
    CHECK(wide.hops == Approx(wide.inter_node));
    // Six messages are read and the tensor is written.
    CHECK(zeropp::secondary_gather_time(with_codec(1e6), ranks, {2, coded}, elements, 2).codec ==
          Approx(2 * 0.048 + 0.096));
}

TEST_CASE("planned time: an update crosses with its differences, then moves inside with what nodes keep") {
    const zeropp::wire_format few{
        {64, [](std::size_t n, const zeropp::message_place&) { return n / 4; }}, "few", 2, false};
    const zeropp::collective_time t = zeropp::update_gather_time(slow, ranks, few, bf16, elements, 2);
    CHECK(t.inter_node == Approx(2 * 0.01 + 2 * 2 * 0.02));
    CHECK(t.intra_node == Approx(1 * 0.001 + 3 * 0.016));
    CHECK(t.hops == Approx(t.inter_node + t.intra_node));
    // In 5 chunks latencies come with each, and the hops run side by side.
    const zeropp::collective_time cut = zeropp::update_gather_time(slow, ranks, few, bf16, elements, 2, 5);
    CHECK(cut.hops == Approx(5 * 2 * 0.01 + 2 * 2 * 0.02 + (5 * 0.001 + 3 * 0.016) / 5));
    // Reads a shard and what is kept of it, writes a message; reads three, and reads and writes three slices.
    CHECK(zeropp::update_gather_time(with_codec(1e6), ranks, few, bf16, elements, 2).codec ==
          Approx(2 * 0.016 + 0.002 + 3 * 0.002 + 3 * 2 * 0.016));
    // Of exact differences, ranks exchange their sizes first: 8 bytes for each chunk.
    zeropp::wire_format exact = few;
    exact.varies = true;
    exact.code_bits = 4;
    const zeropp::collective_time sized = zeropp::update_gather_time(slow, ranks, exact, bf16, elements, 2);
    CHECK(sized.inter_node == Approx(2 * 2 * 0.01 + 2 * 2 * 0.005 + 2 * 2 * 8e-5));
    CHECK(sized.hops == Approx(sized.inter_node + sized.intra_node));
    const zeropp::collective_time back = zeropp::replica_gather_time(with_codec(1e6), ranks, coded, elements, 2);
    CHECK(back.inter_node == 0);
    CHECK(back.hops == Approx(1 * 0.001 + 3 * 0.016));
    // Reads three slices, writes their messages, which are six in the group, and the tensor.
    CHECK(back.codec == Approx(3 * 0.016 + 6 * 0.016 + 0.096));
    CHECK(zeropp::replica_gather_time(with_codec(1e6), ranks, bf16, elements, 2).codec == 0);
    CHECK(zeropp::update_gather_time(slow, ranks, few, bf16, 0, 2).total() == 0);
}

TEST_CASE("planned time: a reduce-scatter's hops run side by side when it is in chunks") {
    const zeropp::collective_time whole = zeropp::reduce_scatter_time(slow, ranks, {bf16, bf16}, elements, 2);
    CHECK(whole.intra_node == Approx(0.001 + 3 * 0.016));
    CHECK(whole.inter_node == Approx(2 * 0.01 + 2 * 2 * 0.16));
    CHECK(whole.hops == Approx(whole.intra_node + whole.inter_node));
    // 5 chunks of 25 blocks of 64. Latencies come with each; the bytes stay the same.
    const zeropp::collective_time cut = zeropp::reduce_scatter_time(slow, ranks, {bf16, bf16}, elements, 2, 5);
    CHECK(cut.intra_node == Approx(5 * 0.001 + 3 * 0.016));
    CHECK(cut.inter_node == Approx(5 * 2 * 0.01 + 2 * 2 * 0.16));
    CHECK(cut.hops == Approx(cut.inter_node + cut.intra_node / 5));
    // Reads the tensor and writes a slice; six messages inside and three across, each written and read.
    CHECK(zeropp::reduce_scatter_time(with_codec(1e6), ranks, {coded, coded}, elements, 2).codec ==
          Approx(0.096 + 0.016 + 2 * 9 * 0.016));
}

TEST_CASE("planned time: a step without overlap is the sum, and with it the longer side of each pass") {
    const std::array<std::size_t, 2> tensors{elements, elements};
    const zeropp::step_options zero3{.weights = bf16, .gradients = {bf16, bf16}};
    const double gather = zeropp::all_gather_time(slow, ranks, bf16, elements, 2).total();
    const double reduce = zeropp::reduce_scatter_time(slow, ranks, {bf16, bf16}, elements, 2).total();

    const zeropp::step_time idle = zeropp::time_of_step(slow, ranks, tensors, zero3, {});
    CHECK(idle.communication() == Approx(4 * gather + 2 * reduce));
    CHECK(idle.without_overlap() == Approx(idle.communication()));
    CHECK(idle.with_overlap() == Approx(idle.communication()));

    // Forward computes longer than it communicates, backward not.
    const double forward = 2 * gather + 1;
    const zeropp::step_time busy = zeropp::time_of_step(slow, ranks, tensors, zero3, {forward, 0.5});
    CHECK(busy.without_overlap() == Approx(forward + 0.5 + 4 * gather + 2 * reduce));
    CHECK(busy.with_overlap() == Approx(forward + 2 * gather + 2 * reduce));

    zeropp::step_options hpz = zero3;
    hpz.secondary = zeropp::secondary_options{2, bf16};
    CHECK(zeropp::time_of_step(slow, ranks, tensors, hpz, {}).backward.total() ==
          Approx(2 * zeropp::secondary_gather_time(slow, ranks, {2, bf16}, elements, 2).total()));
    CHECK(zeropp::compute_time::of_step(3).forward == Approx(1));
    CHECK(zeropp::compute_time::of_step(3).backward == Approx(2));
}

TEST_CASE("planned time: nodes of unequal size take as long as the largest between nodes, and the slowest inside") {
    // 8 ranks, of messages of 16,000 bytes: three columns, of which the last node serves two with one of its ranks.
    const zeropp::two_level uneven = zeropp::two_level::of_nodes({3, 3, 2});
    const zeropp::collective_time t = zeropp::all_gather_time(slow, uneven, bf16, 8 * 8000, 2);
    // A node's link carries three messages to each of two nodes; one rank starts four, in turn.
    CHECK(t.inter_node == Approx(4 * 0.01 + 3 * 2 * 0.16));
    // The last node's ranks send three messages to each other twice; the others' ranks three to each of two.
    CHECK(t.intra_node == Approx(2 * 0.001 + 2 * 3 * 0.016));
    CHECK(t.hops == Approx(t.inter_node + t.intra_node));
    const zeropp::collective_time kept = zeropp::replica_gather_time(slow, uneven, bf16, 8 * 8000, 2);
    CHECK(kept.hops == Approx(2 * 0.001 + 2 * 3 * 0.016));
    CHECK(kept.inter_node == 0);
    // In the smallest node, one message of half the tensor; in the others, two of a third.
    const zeropp::collective_time secondary =
        zeropp::secondary_gather_time(slow, uneven, {zeropp::whole_nodes, bf16}, 8 * 8000, 2);
    CHECK(secondary.hops ==
          Approx(2 * 0.001 + 2 * (zeropp::partition(64000, 3).slice_size() + 2) * 2e-6).epsilon(1e-3));
    CHECK_THROWS_WITH(zeropp::secondary_gather_time(slow, uneven, {2, bf16}, 8 * 8000, 2),
                      "secondary group size: expected whole nodes, since nodes differ in size, given 2");
    const zeropp::collective_time equal = zeropp::all_gather_time(slow, zeropp::two_level(3, 3), bf16, 9 * 8000, 2);
    CHECK(equal.inter_node == Approx(2 * 0.01 + 3 * 2 * 0.16));
}
