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

/// Ranks of the groups that mirror each other's shards (shard_mirror): the group of `rank` and its partner, in
/// increasing order. Groups are partners in pairs; of an odd number, the last three are. Throws precondition_error if
/// there is one group, or no such rank.
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

/// A message that a rank keeps: of the shards of `owner`, from slot `slot` of those that it serves among partners.
struct mirrored_shard {
    int slot;
    int owner;
};

/// Messages that `rank` keeps for its partners: in each range of slots that it serves, one of each other partner group.
/// `members` are its partner_ranks, and `partners` their topology.
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

/// The same for a rank of `ranks`.
template <topology Topology>
std::vector<mirrored_shard> mirrored_by(const Topology& ranks, int rank) {
    const std::vector<int> members = partner_ranks(ranks, rank);
    return mirrored_by(ranks.shrink(members), members, rank);
}

}  // namespace detail

}  // namespace zeropp
