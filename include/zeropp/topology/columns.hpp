#pragma once
/// \file
/// Columns of slots, and the ranks that serve them if nodes differ in size.

#include <zeropp/topology/topology.hpp>

#include <algorithm>
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
