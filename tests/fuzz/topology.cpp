// Any integers as a map of ranks to nodes, and as sizes: a topology that keeps the laws of topologies, divides every
// tensor without loss, and has one rank of each node for every column; or the error for no ranks.

#include "conformance/topology_laws.hpp"
#include "fuzz/reader.hpp"

#include <zeropp/core/error.hpp>
#include <zeropp/layout/chunking.hpp>
#include <zeropp/layout/partition.hpp>
#include <zeropp/layout/slices.hpp>
#include <zeropp/topology/columns.hpp>
#include <zeropp/topology/two_level.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

namespace {

using namespace zeropp;
using namespace zeropp_test;

/// The topology of a map, or nothing if it has no ranks.
std::optional<two_level> topology_of(const std::vector<int>& node_of_rank) {
    std::map<int, int> ranks_on;
    for (const int node : node_of_rank) ++ranks_on[node];
    try {
        const two_level nodes{std::span<const int>(node_of_rank)};
        require(!node_of_rank.empty(), "an error without ranks");
        require(nodes.groups() == static_cast<int>(ranks_on.size()), "as many groups as nodes");
        for (int a = 0; a != nodes.size(); ++a) {
            const int node = node_of_rank[static_cast<std::size_t>(a)];
            require((nodes.group_of(a) == 0) == (node == node_of_rank[0]),
                    "the first rank's node to be the first group");
            require(nodes.group_size(nodes.group_of(a)) == ranks_on[node], "groups of the nodes' sizes");
        }
        return nodes;
    } catch (const precondition_error&) {
        require(node_of_rank.empty(), "no error with ranks");
        return std::nullopt;
    }
}

/// Every column has one rank of each node; each rank serves its own column first, and no column twice.
void serves_columns(const two_level& nodes) {
    std::vector<int> served(static_cast<std::size_t>(nodes.size()));
    for (int column = 0; column != largest_group_size(nodes); ++column) {
        const std::vector<int> members = column_ranks(nodes, column);
        for (int g = 0; g != nodes.groups(); ++g) {
            const int rank = members.at(static_cast<std::size_t>(g));
            require(rank < nodes.size() && nodes.group_of(rank) == g, "a rank of each node");
            const column_rounds rounds = rounds_of(nodes, g);
            const int round = served[static_cast<std::size_t>(rank)]++;
            require(rounds.column(round, nodes.index_of(rank)) == column, "columns in the order of rounds");
            require(rounds.serves(round, nodes.index_of(rank)), "a column that the rank serves");
            require((round == 0) == (nodes.index_of(rank) == column), "a rank's own column first");
        }
    }
    for (int r = 0; r != nodes.size(); ++r) {
        const column_rounds rounds = rounds_of(nodes, nodes.group_of(r));
        require(rounds.served(nodes.index_of(r)) == served[static_cast<std::size_t>(r)], "as many columns as counted");
        require(rounds.count() <= most_rounds(nodes), "no more rounds than the most");
    }
}

void keeps_the_laws(const two_level& nodes) {
    require(ranks_and_places_are_inverse(nodes), "ranks and places to be inverse");
    require(places_follow_ranks(nodes), "places to follow ranks");
    require(is_order_of(nodes.order(), nodes), "slots in the order of ZeRO++");
    if (nodes.groups() == 1 || largest_group_size(nodes) == 1)
        require(is_identity(nodes), "ranks as the world has them");
    const two_level copy = nodes;
    require(copy == nodes && is_order_of(copy.order(), nodes), "a copy that is the same");
}

/// Every element in one slot and one chunk, and as torch.chunk divides.
void divides(std::size_t elements, const two_level& nodes, int wanted_chunks, std::size_t block) {
    const partition part(elements, nodes.size());
    const auto ranks = static_cast<std::size_t>(nodes.size());
    const std::size_t slice = (elements + ranks - 1) / ranks;
    for (int r = 0; r != nodes.size(); ++r) {
        const std::size_t begin = std::min(elements, static_cast<std::size_t>(r) * slice);
        require(part.offset(r) == begin, "slices one behind the other");
        require(part.size(r) == std::min(slice, elements - begin), "slices of one size, but for the last");
    }
    const chunking cut(part.slice_size(), wanted_chunks, block);
    require(cut.chunks <= static_cast<std::size_t>(std::max(wanted_chunks, 1)), "no more chunks than wanted");
    require((cut.chunks == 0) == (part.slice_size() == 0), "chunks where there is something");
    std::size_t in_chunks = 0;
    for (std::size_t c = 0; c != cut.chunks; ++c) in_chunks += cut.count(c);
    require(in_chunks == part.slice_size(), "chunks that are the slice together");
    std::vector<int> carried(elements);
    for (std::size_t c = 0; c != cut.chunks; ++c) {
        require(cut.count(c) != 0 && cut.count(c) <= cut.chunk && cut.chunk % block == 0, "chunks of whole blocks");
        const slices where{part, nodes.order(), c * cut.chunk, cut.count(c), 0, slot_count(nodes)};
        for (int s = 0; s != slot_count(nodes); ++s) {
            for (std::size_t i = 0; i != where.size(s); ++i) ++carried.at(where.offset(s) + i);
        }
    }
    require(std::all_of(carried.begin(), carried.end(), [](int times) { return times == 1; }), "every element once");
}

/// The other ways to make one.
void counts(int first, int second) {
    const bool divides = first > 0 && second > 0 && first % second == 0;
    try {
        const two_level nodes = two_level::of_size(first, second);
        require(divides && nodes.size() == first && nodes.group_size(0) == second && has_equal_groups(nodes),
                "a size that divides");
        require(nodes == two_level(first / second, second), "the same by either name");
    } catch (const precondition_error&) {
        require(!divides, "no error where the size divides");
    }
    try {
        require(two_level(first % 64, second).groups() == first % 64 && first % 64 > 0 && second > 0, "as many nodes");
    } catch (const precondition_error&) {
        require(first % 64 < 1 || second < 1, "no error where both are positive");
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    reader input(data, size);
    const std::size_t elements = input.take_between(0, 3000);
    const std::size_t block = std::size_t{8} << input.take_between(0, 8);
    const auto wanted_chunks = static_cast<int>(input.take<std::int8_t>());
    const int first = input.take<std::int8_t>();
    counts(first, input.take<std::int8_t>());

    // Names of nodes far apart, and near zero.
    std::vector<int> node_of_rank;
    for (const std::uint8_t node : input.rest().first(std::min<std::size_t>(input.rest().size(), 96))) {
        node_of_rank.push_back(node < 128 ? node : (node - 192) * 33554432);
    }
    if (const auto nodes = topology_of(node_of_rank)) {
        keeps_the_laws(*nodes);
        serves_columns(*nodes);
        divides(elements, *nodes, wanted_chunks, block);
    }
    return 0;
}
