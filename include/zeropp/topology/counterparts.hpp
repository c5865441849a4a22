#pragma once
/// \file
/// Lists of ranks, as a transport's `split` takes them.

#include <zeropp/core/error.hpp>
#include <zeropp/topology/columns.hpp>
#include <zeropp/topology/topology.hpp>

#include <string>
#include <vector>

namespace zeropp {

/// `rank` and its peers along `level`, in the order of their coordinates. Level 0 gives the ranks of the group of
/// `rank`, by index; level 1 of two gives `rank` and its counterparts, by group. Throws precondition_error unless
/// `rank` and `level` exist; for levels from 1 on also if groups differ in size, because some ranks then have no
/// counterpart.
template <topology Topology>
std::vector<int> peer_ranks(const Topology& ranks, int level, int rank) {
    detail::existing_rank("peer_ranks", ranks.size(), rank);
    detail::existing("peer_ranks", "a level", Topology::levels, level);
    std::vector<int> members;
    if (level == 0) {
        const int group = ranks.group_of(rank);
        for (int i = 0; i != ranks.group_size(group); ++i) members.push_back(ranks.rank_of(group, i));
        return members;
    }
    if (!has_equal_groups(ranks)) {
        throw precondition_error("peer_ranks", "groups of equal size", group_sizes_text(ranks));
    }
    const int group = ranks.group_of(rank), apart = slots_beyond(ranks, level), peers = extent(ranks, level);
    const int first = group / (apart * peers) * (apart * peers) + group % apart;
    for (int p = 0; p != peers; ++p) members.push_back(ranks.rank_of(first + p * apart, ranks.index_of(rank)));
    return members;
}

}  // namespace zeropp
