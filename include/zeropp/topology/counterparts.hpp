#pragma once
/// \file
/// Lists of ranks, as a transport's `split` takes them.

#include <zeropp/topology/topology.hpp>

#include <vector>

namespace zeropp {

/// Ranks of the group of `rank`, by index.
template <topology Topology>
std::vector<int> group_ranks(const Topology& ranks, int rank) {
    std::vector<int> members;
    for (int i = 0; i != ranks.group_size(); ++i) members.push_back(ranks.rank_of(ranks.group_of(rank), i));
    return members;
}

/// Ranks with the index of `rank`, one of each group, by group.
template <topology Topology>
std::vector<int> counterpart_ranks(const Topology& ranks, int rank) {
    std::vector<int> members;
    for (int g = 0; g != ranks.groups(); ++g) members.push_back(ranks.rank_of(g, ranks.index_of(rank)));
    return members;
}

}  // namespace zeropp
