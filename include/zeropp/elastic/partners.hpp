#pragma once
/// \file
/// Partner nodes, which keep copies of each other's shards.

#include <zeropp/core/error.hpp>
#include <zeropp/topology/columns.hpp>
#include <zeropp/topology/topology.hpp>

#include <algorithm>
#include <cstddef>
#include <vector>

namespace zeropp {

/// Ranks, in increasing order, of the group of `rank` and its partner groups, which mirror each other's shards
/// (shard_mirror). Groups 2i and 2i + 1 are partners. If the number of groups is odd, the last three are partners.
/// Throws precondition_error if there is only one group, or if `rank` does not exist.
template <topology Topology>
std::vector<int> partner_ranks(const Topology& ranks, int rank) {
    const int groups = ranks.groups();
    if (groups == 1) throw precondition_error("partner_ranks", "at least 2 groups", group_sizes_text(ranks));
    const int pair = ranks.group_of(detail::existing_rank("partner_ranks", ranks.size(), rank)) / 2 * 2;
    const int first = groups % 2 == 0 ? pair : std::min(pair, groups - 3);
    const int end = groups - first == 3 ? groups : first + 2;
    std::vector<int> members;
    for (int g = first; g != end; ++g) {
        for (int i = 0; i != ranks.group_size(g); ++i) members.push_back(ranks.rank_of(g, i));
    }
    std::ranges::sort(members);
    return members;
}

namespace detail {

/// A message that a rank keeps for a partner: the shards of rank `owner`. `slot` is the index of this message among the
/// messages of all slots that the keeping rank serves.
struct mirrored_shard {
    int slot;
    int owner;
};

/// Messages that `rank`, a number among all ranks, keeps for its partners: for each column that it serves, one of each
/// other partner group. `members` are the partner_ranks of `rank`, and `partners` is the topology of these ranks.
template <topology Topology>
std::vector<mirrored_shard> mirrored_by(const Topology& partners, const std::vector<int>& members, int rank) {
    const int own = static_cast<int>(std::ranges::lower_bound(members, rank) - members.begin());
    std::vector<mirrored_shard> kept;
    for_each_served(partners, own, [&](int slot, int owner) {
        if (partners.group_of(owner) == partners.group_of(own)) return;
        kept.push_back({slot, members[static_cast<std::size_t>(owner)]});
    });
    return kept;
}

/// Messages that `rank` of the topology `ranks` keeps for its partners. Throws precondition_error as partner_ranks
/// does.
template <topology Topology>
std::vector<mirrored_shard> mirrored_by(const Topology& ranks, int rank) {
    const std::vector<int> members = partner_ranks(ranks, rank);
    return mirrored_by(ranks.shrink(members), members, rank);
}

}  // namespace detail

}  // namespace zeropp
