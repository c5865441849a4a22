#pragma once
/// \file
/// Laws of `counting` transports. Collective over `world`.

#include "conformance/broadcast_laws.hpp"
#include "conformance/delivery_laws.hpp"
#include "conformance/split_laws.hpp"
#include "support/expectations.hpp"

#include <zeropp/execution/host.hpp>
#include <zeropp/transport/counting.hpp>
#include <zeropp/transport/transport.hpp>

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <source_location>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace zeropp_test {

/// The entry of `primitive`, or an empty one.
template <class Counting>
zeropp::traffic traffic_of(const Counting& transport, std::string_view primitive) {
    for (const zeropp::traffic& t : transport.by_primitive()) {
        if (t.primitive == zeropp::short_text(primitive)) return t;
    }
    return {.primitive = primitive};
}

inline void equals(const zeropp::traffic& t, std::uint64_t calls, std::uint64_t intra_node, std::uint64_t inter_node,
                   expectations& expect, std::source_location at = std::source_location::current()) {
    expect.equal(t.calls, calls, at);
    expect.equal(t.intra_node_bytes, intra_node, at);
    expect.equal(t.inter_node_bytes, inter_node, at);
}

/// For `counting` transports that have counted nothing yet; `node_of_rank` is their topology.
template <class Counting>
void counts_exactly(Counting& world, const std::vector<int>& node_of_rank, expectations& expect) {
    const zeropp::host exec;
    const int rank = world.rank();
    const auto node = [&](int r) { return node_of_rank.at(static_cast<std::size_t>(r)); };
    // Numbers of other ranks in `ranks`: on this rank's node, and on other nodes.
    const auto peers = [&](const std::vector<int>& ranks) {
        std::pair<std::uint64_t, std::uint64_t> intra_and_inter_node;
        for (const int r : ranks) {
            if (r != rank) ++(node(r) == node(rank) ? intra_and_inter_node.first : intra_and_inter_node.second);
        }
        return intra_and_inter_node;
    };
    std::vector<int> everyone(static_cast<std::size_t>(world.size()));
    std::iota(everyone.begin(), everyone.end(), 0);
    const auto [intra_node, inter_node] = peers(everyone);
    std::vector<std::byte> send(place(world.size(), 100));
    std::vector<std::byte> received(place(world.size(), 100));

    equals(world.total(), 0, 0, 0, expect);
    expect(world.by_primitive().empty(), "no entries at first");
    world.all_gather(exec, send.data(), received.data(), 100);
    equals(traffic_of(world, ""), 0, 100 * intra_node, 100 * inter_node, expect);
    world.all_to_all(exec, send.data(), received.data(), 7);
    equals(traffic_of(world, ""), 0, 107 * intra_node, 107 * inter_node, expect);
    world.all_to_all(exec, send.data(), received.data(), 0);
    equals(world.total(), 0, 107 * intra_node, 107 * inter_node, expect);

    if constexpr (must_broadcast<zeropp::host, Counting>()) {
        // Roots send to every other rank, other ranks send nothing. Later operations count as usual.
        std::uint64_t sent = 107;
        for (int roots = 1; roots <= world.size(); ++roots) {
            if (rank < roots) sent += 9;
            world.broadcast(exec, send.data(), received.data(), 9, roots);
            equals(world.total(), 0, sent * intra_node, sent * inter_node, expect);
        }
        world.reset();
        world.all_gather(exec, send.data(), received.data(), 100);
        world.all_to_all(exec, send.data(), received.data(), 7);
    }

    // Three collectives in turn, two of them twice. Operations count for the collective that began last.
    const auto begin = [&](std::string_view name) {
        zeropp::begin_collective(world, {name, 1, "fp32", "int8", {}}, "");
    };
    for (const std::string_view name : {"a", "b", "a", "c", "b"}) {
        begin(name);
        world.all_gather(exec, send.data(), received.data(), name == "a" ? 10 : name == "b" ? 20 : 30);
    }
    equals(traffic_of(world, "a"), 2, 20 * intra_node, 20 * inter_node, expect);
    equals(traffic_of(world, "b"), 2, 40 * intra_node, 40 * inter_node, expect);
    equals(traffic_of(world, "c"), 1, 30 * intra_node, 30 * inter_node, expect);
    equals(traffic_of(world, ""), 0, 107 * intra_node, 107 * inter_node, expect);
    equals(world.total(), 5, 197 * intra_node, 197 * inter_node, expect);
    std::string names;
    for (const zeropp::traffic& t : world.by_primitive()) names += "[" + t.primitive.str() + "]";
    expect.equal(names, "[][a][b][c]");

    // Splits, and splits of splits, count in the world's totals, by their ranks' nodes in the world.
    const grid ranks(world.size());
    Counting column = world.split(ranks.column_of(rank));
    Counting row = world.split(ranks.row_of(rank));
    Counting alone = row.split(std::vector<int>{row.rank()});
    std::vector<int> reversed(everyone.rbegin(), everyone.rend());
    Counting backwards = world.split(reversed);
    Counting nested = backwards.split(ranks.row_of(backwards.rank()));
    std::vector<int> nested_ranks;
    for (const int b : ranks.row_of(backwards.rank())) nested_ranks.push_back(world.size() - 1 - b);
    world.reset();
    equals(world.total(), 0, 0, 0, expect);
    equals(column.total(), 0, 0, 0, expect);
    begin("d");
    column.all_gather(exec, send.data(), received.data(), 3);
    row.all_to_all(exec, send.data(), received.data(), 5);
    alone.all_gather(exec, send.data(), received.data(), 100);
    const auto [column_intra_node, column_inter_node] = peers(ranks.column_of(rank));
    const auto [row_intra_node, row_inter_node] = peers(ranks.row_of(rank));
    for (const Counting* any : {&world, &column, &row, &alone}) {
        equals(any->total(), 1, 3 * column_intra_node + 5 * row_intra_node, 3 * column_inter_node + 5 * row_inter_node,
               expect);
    }
    alone.reset();
    equals(world.total(), 0, 0, 0, expect);
    nested.all_gather(exec, send.data(), received.data(), 11);
    const auto [nested_inside, nested_across] = peers(nested_ranks);
    equals(world.total(), 0, 11 * nested_inside, 11 * nested_across, expect);
}

}  // namespace zeropp_test
