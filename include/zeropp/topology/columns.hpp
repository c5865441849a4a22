#pragma once
/// \file
/// Columns of slots, and the ranks that serve them if nodes differ in size. Lists of ranks, as a transport's `split`
/// takes them.

#include <zeropp/core/error.hpp>
#include <zeropp/topology/topology.hpp>

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

namespace zeropp {

/// Rounds in which the ranks of one group serve all columns. Column c holds the slots of index c, one for each group.
/// There are as many columns as the largest group has ranks. In each round, each rank of the group serves one column:
/// the rank of index i serves `column(round, i)`. The intra-node hop brings the column's messages to or from this rank,
/// which exchanges them with the ranks that serve the column in other groups. The largest groups take one round.
struct column_rounds {
    /// Number of columns.
    int columns;
    /// Number of ranks in the group. Requires 0 < ranks <= columns.
    int ranks;

    /// Number of rounds.
    constexpr int count() const { return (columns - 1) / ranks + 1; }
    /// First column of a round. The last round ends with the last column.
    constexpr int first(int round) const { return std::min(round * ranks, columns - ranks); }
    /// Column that the rank with index `index` in its group has in a round.
    constexpr int column(int round, int index) const { return first(round) + index; }
    /// True if the rank with `index` serves its column of this round. False if the column belongs to the round before.
    /// The last round then moves the column within the node again, so that all rounds have messages of one size.
    constexpr bool serves(int round, int index) const { return column(round, index) >= round * ranks; }
    /// Number of columns that the rank with `index` serves: one for each round, perhaps none for the last.
    constexpr int served(int index) const { return count() - (serves(count() - 1, index) ? 0 : 1); }
};

/// Rounds in which the ranks of `group` serve all columns. Throws precondition_error if there is no such group.
template <topology Topology>
constexpr column_rounds rounds_of(const Topology& ranks, int group) {
    return {largest_group_size(ranks),
            ranks.group_size(detail::existing("rounds_of", "a group", ranks.groups(), group))};
}

/// Number of rounds of the smallest group, the most that a group takes: 1 if groups are of equal size.
template <topology Topology>
constexpr int most_rounds(const Topology& ranks) {
    if (has_equal_groups(ranks)) return 1;
    int fewest = ranks.group_size(0);
    for (int g = 1; g != ranks.groups(); ++g) fewest = std::min(fewest, ranks.group_size(g));
    return column_rounds{largest_group_size(ranks), fewest}.count();
}

/// Consecutive slots of which a rank has messages. `place` is the first slot's index in the rank's list of messages.
struct slot_range {
    int first = 0;
    int count = 1;
    int place = 0;
};

/// The slots that a rank serves: it moves their messages between groups. One range for each column, the rank's own
/// column first. Before the intra-node hop, an all-gather has brought the messages of these slots to the rank. A
/// reduction sums these messages on the rank.
struct served_slots {
    column_rounds rounds;
    int index;
    int groups;

    /// Number of ranges: 1 if groups are of equal size.
    constexpr int size() const { return rounds.served(index); }
    constexpr slot_range operator[](int i) const { return {rounds.column(i, index) * groups, groups, i * groups}; }
};

/// Slots that `rank` serves: the rank moves messages of these slots between groups.
template <topology Topology>
constexpr served_slots served_by(const Topology& ranks, int rank) {
    return {rounds_of(ranks, ranks.group_of(rank)), ranks.index_of(rank), ranks.groups()};
}

/// Calls `f(place, owner)` for each slot that `rank` serves, unless the slot has no rank. `owner` is the slot's rank,
/// `place` the slot's index in the list of messages of `rank`.
template <topology Topology, class F>
void for_each_served(const Topology& ranks, int rank, F f) {
    const served_slots served = served_by(ranks, rank);
    for (int i = 0; i != served.size(); ++i) {
        for (int s = 0; s != served[i].count; ++s) {
            const int owner = ranks.order().rank(served[i].first + s);
            if (owner < ranks.size()) f(served[i].place + s, owner);
        }
    }
}

/// Largest number of slots that a rank serves, which means that it moves messages of these slots between groups.
template <topology Topology>
constexpr std::size_t most_served(const Topology& ranks) {
    return static_cast<std::size_t>(most_rounds(ranks) * ranks.groups());
}

/// Largest number of slots for which a rank sends messages along `level` in a reduction. 0 without a hop along `level`.
template <topology Topology>
constexpr std::size_t reduction_slots(const Topology& ranks, int level) {
    if (!has_hop(ranks, level)) return 0;
    if (level == 0) return static_cast<std::size_t>(slot_count(ranks));
    return static_cast<std::size_t>(most_rounds(ranks) * slots_beyond(ranks, level - 1));
}

/// Number of sends of `rank` to peers along `level`, each of the messages of `slots_beyond(ranks, level)` slots. A peer
/// gets one in each round of the group (level 0), or for each range that `rank` serves (later levels).
template <topology Topology>
constexpr int sends_along(const Topology& ranks, int level, int rank) {
    const served_slots served = served_by(ranks, rank);
    return level == 0 ? served.rounds.count() * (served.rounds.ranks - 1) : served.size() * (extent(ranks, level) - 1);
}

/// Number of ranks in each group in words: "3 groups of 8 ranks" or "3 groups of 8, 8, 7 ranks".
template <topology Topology>
std::string group_sizes_text(const Topology& ranks) {
    std::string sizes = std::to_string(ranks.group_size(0));
    if (!has_equal_groups(ranks)) {
        for (int g = 1; g != ranks.groups(); ++g) sizes += ", " + std::to_string(ranks.group_size(g));
    }
    return std::to_string(ranks.groups()) + " groups of " + sizes + " ranks";
}

/// Ranks that serve `column`, one of each group, in the order of groups: of index `column` or, in groups without that
/// index, of another. Throws precondition_error if there is no such column.
template <topology Topology>
std::vector<int> column_ranks(const Topology& ranks, int column) {
    detail::existing("column_ranks", "a column", largest_group_size(ranks), column);
    std::vector<int> members;
    for (int g = 0; g != ranks.groups(); ++g) {
        const column_rounds rounds = rounds_of(ranks, g);
        members.push_back(ranks.rank_of(g, column - rounds.first(column / rounds.ranks)));
    }
    return members;
}

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
