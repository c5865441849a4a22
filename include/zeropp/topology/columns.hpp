#pragma once
/// \file
/// Columns of slots, and the ranks that serve them if nodes differ in size.

#include <zeropp/topology/topology.hpp>

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

namespace zeropp {

/// Rounds in which the ranks of one group serve all columns. Column c holds the slots of index c, one for each group;
/// as many columns exist as the largest group has ranks. In each round, a group moves as many columns as it has ranks,
/// one for each: the intra-node hop brings column `column(round, i)` to or from rank i, which exchanges it with the
/// ranks that serve it in other groups. The largest groups take one round.
struct column_rounds {
    /// Number of columns, and of ranks in the group. Requires 0 < ranks <= columns.
    int columns;
    int ranks;

    /// Number of rounds.
    constexpr int count() const { return (columns - 1) / ranks + 1; }
    /// First column of a round. The last round ends with the last column.
    constexpr int first(int round) const { return std::min(round * ranks, columns - ranks); }
    /// Column of the rank with `index`.
    constexpr int column(int round, int index) const { return first(round) + index; }
    /// False if the column belongs to the round before: the last round moves it within the node again, so that all
    /// rounds have messages of one size.
    constexpr bool serves(int round, int index) const { return column(round, index) >= round * ranks; }
    /// Number of columns that the rank with `index` serves: one for each round, perhaps none for the last.
    constexpr int served(int index) const { return count() - (serves(count() - 1, index) ? 0 : 1); }
};

/// Rounds of a group of `ranks`. Throws precondition_error if there is no such group.
template <topology Topology>
constexpr column_rounds rounds_of(const Topology& ranks, int group) {
    return {largest_group_size(ranks),
            ranks.group_size(detail::existing("rounds_of", "a group", ranks.groups(), group))};
}

/// Largest number of rounds of a group: 1 if groups are of equal size.
template <topology Topology>
constexpr int most_rounds(const Topology& ranks) {
    if (has_equal_groups(ranks)) return 1;
    int fewest = ranks.group_size(0);
    for (int g = 1; g != ranks.groups(); ++g) fewest = std::min(fewest, ranks.group_size(g));
    return column_rounds{largest_group_size(ranks), fewest}.count();
}

/// Consecutive slots of messages that a rank has. `place` is the number of the first one's message among them.
struct slot_range {
    int first = 0;
    int count = 1;
    int place = 0;
};

/// The slots that a rank serves, in ranges: its own column first. Before the hop within the node, an all-gather has
/// brought their messages to this rank; a reduction sums them there.
struct served_slots {
    column_rounds rounds;
    int index;
    int groups;

    /// Number of ranges: 1 if groups are of equal size.
    constexpr int size() const { return rounds.served(index); }
    constexpr slot_range operator[](int i) const { return {rounds.column(i, index) * groups, groups, i * groups}; }
};

/// Slots that `rank` serves.
template <topology Topology>
constexpr served_slots served_by(const Topology& ranks, int rank) {
    return {rounds_of(ranks, ranks.group_of(rank)), ranks.index_of(rank), ranks.groups()};
}

/// Calls f(place, owner) for each slot that `rank` serves, if it has a rank `owner`; `place` as in slot_range.
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

/// Number of slots that the rank that serves the most serves.
template <topology Topology>
constexpr std::size_t most_served(const Topology& ranks) {
    return static_cast<std::size_t>(most_rounds(ranks) * ranks.groups());
}

/// Number of slots of the messages that a rank sends in a reduction along `level`: of the rank that sends the most. 0
/// without a hop along it.
template <topology Topology>
constexpr std::size_t reduction_slots(const Topology& ranks, int level) {
    if (!has_hop(ranks, level)) return 0;
    if (level == 0) return static_cast<std::size_t>(slot_count(ranks));
    return static_cast<std::size_t>(most_rounds(ranks) * slots_beyond(ranks, level - 1));
}

/// Number of times that `rank` sends to a peer along `level`, each time the messages of `slots_beyond(ranks, level)`
/// slots: in each round of its group, or for each range that it serves.
template <topology Topology>
constexpr int sends_along(const Topology& ranks, int level, int rank) {
    const served_slots served = served_by(ranks, rank);
    return level == 0 ? served.rounds.count() * (served.rounds.ranks - 1) : served.size() * (extent(ranks, level) - 1);
}

/// True if both topologies have the same number of groups, each with the same number of ranks.
template <topology A, topology B>
constexpr bool has_same_groups(const A& a, const B& b) {
    if (a.groups() != b.groups()) return false;
    for (int g = 0; g != a.groups(); ++g) {
        if (a.group_size(g) != b.group_size(g)) return false;
    }
    return true;
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

/// Ranks that serve `column`, one of each group, by group: of index `column` or, in smaller groups, of another.
/// Throws precondition_error if there is no such column.
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

}  // namespace zeropp
