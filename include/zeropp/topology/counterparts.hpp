#pragma once
/// \file
/// Lists of ranks, as a transport's `split` takes them.

#include <zeropp/core/error.hpp>
#include <zeropp/topology/columns.hpp>
#include <zeropp/topology/topology.hpp>

#include <vector>

namespace zeropp {

/// Ranks of the group of `rank`, by index. Throws precondition_error unless `rank` is one of `ranks`.
template <topology Topology>
std::vector<int> group_ranks(const Topology& ranks, int rank) {
    std::vector<int> members;
    const int group = ranks.group_of(detail::existing_rank("group_ranks", ranks.size(), rank));
    for (int i = 0; i != ranks.group_size(group); ++i) members.push_back(ranks.rank_of(group, i));
    return members;
}

/// Ranks with the index of `rank`, one of each group, by group. Throws precondition_error unless `rank` is one of
/// `ranks`, and if groups differ in size, because some ranks then have no counterpart.
template <topology Topology>
std::vector<int> counterpart_ranks(const Topology& ranks, int rank) {
    if (!has_equal_groups(ranks)) {
        throw precondition_error("counterpart_ranks", "groups of equal size", group_sizes_text(ranks));
    }
    const int index = ranks.index_of(detail::existing_rank("counterpart_ranks", ranks.size(), rank));
    std::vector<int> members;
    for (int g = 0; g != ranks.groups(); ++g) members.push_back(ranks.rank_of(g, index));
    return members;
}

}  // namespace zeropp
