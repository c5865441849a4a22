#pragma once
/// \file
/// The topology concept: node and index of each rank. Integers only, no communication.

#include <zeropp/core/error.hpp>
#include <zeropp/core/math.hpp>

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace zeropp {

/// Map from slots, the positions of messages, to ranks: slot = index in group * groups + group. So messages to one rank
/// of a node, for that rank and its counterparts, are contiguous (ZeRO++'s slice reordering). Two strides describe
/// evenly spaced ranks; for others, `table` points to the topology's table. A default-constructed order is of a single
/// group: slots are ranks.
struct slice_order {
    /// Number of groups.
    int groups = 1;
    /// Distance in ranks between equal indices of successive groups.
    int group_stride = 1;
    /// Distance between successive ranks of a group.
    int index_stride = 1;
    /// [slot]: rank of the slot; nullptr if the strides give the ranks.
    const int* table = nullptr;

    /// Rank of `slot`. If the group has no rank of this index: the number of ranks, or more.
    constexpr ZEROPP_HOST_DEVICE int rank(int slot) const {
        return table ? table[slot] : slot % groups * group_stride + slot / groups * index_stride;
    }
};

namespace detail {
/// The order in which slots n, n + 1, ..., 2 n - 1 are the ranks `first`, `first` + `apart`, ...
constexpr slice_order evenly(int first, int n, int apart) {
    return {.groups = n, .group_stride = apart, .index_stride = first};
}
}  // namespace detail

/// A topology: a map between the ranks of a world and pairs (group, index in group). Groups are nodes, with fast links.
/// Indices are in the order of ranks. A regular value.
///
/// `levels` is the number of kinds of links, which are numbered from the fastest: level 0 joins the ranks of a group,
/// and the last level has the slowest links. Ranks that differ in the coordinate of one level only are peers along that
/// level. Groups may differ in size if no level beyond 1 has several peers. With one or two levels, groups are numbered
/// by their lowest rank. With more levels, groups form a grid of equal extents. Then a group's number is mixed radix,
/// and the coordinate of level 1 is the most significant. If at most one level has several peers, each rank's slot has
/// the number of the rank.
///   `levels`               a constant: 1 for a single group, 2 for groups side by side, 3 for groups in sites, ...
///   `size()`               number of ranks
///   `groups()`             number of groups
///   `group_size(group)`    number of ranks in a group
///   `group_of(rank)`       in [0, groups())
///   `index_of(rank)`       in [0, group_size(group_of(rank)))
///   `rank_of(group, index)` the rank of this group and index
///   `order()`              the map as a slice_order, which refers to the topology's memory. A slot exists for
///                          each group and each index below `largest_group_size`; their number, `slot_count`, is an int
///   `extent(level)`        with 3 or more levels: groups along a level from 1 on; `groups()` is the product of all
template <class T>
concept topology = std::regular<T> && requires(const T& t, int i) {
    requires T::levels == 1 || T::levels == 2 || (T::levels > 2 && requires {
                 { t.extent(i) } -> std::same_as<int>;
             });
    { t.size() } -> std::same_as<int>;
    { t.groups() } -> std::same_as<int>;
    { t.group_size(i) } -> std::same_as<int>;
    { t.group_of(i) } -> std::same_as<int>;
    { t.index_of(i) } -> std::same_as<int>;
    { t.rank_of(i, i) } -> std::same_as<int>;
    { t.order() } -> std::same_as<slice_order>;
};

/// Number of ranks of the largest group: the topology's member `largest_group_size()` if there is one.
template <topology Topology>
constexpr int largest_group_size(const Topology& ranks) {
    if constexpr (requires { ranks.largest_group_size(); }) {
        return ranks.largest_group_size();
    } else {
        int most = 0;
        for (int g = 0; g != ranks.groups(); ++g) most = std::max(most, ranks.group_size(g));
        return most;
    }
}

/// Number of slots: `largest_group_size(ranks)` for each group. Equals `size()` if groups are of equal size. Otherwise
/// some slots have no rank; their messages hold no elements.
template <topology Topology>
constexpr int slot_count(const Topology& ranks) {
    return largest_group_size(ranks) * ranks.groups();
}

/// True if all groups have the same number of ranks.
template <topology Topology>
constexpr bool has_equal_groups(const Topology& ranks) {
    return slot_count(ranks) == ranks.size();
}

/// Number of coordinates along `level`: a rank and its peers along this level have one each. For level 0, number of
/// ranks of the largest group.
template <topology Topology>
constexpr int extent(const Topology& ranks, int level) {
    if (level == 0) return largest_group_size(ranks);
    if constexpr (Topology::levels > 2) {
        return ranks.extent(level);
    } else {
        return ranks.groups();
    }
}

/// True if collectives have a hop along `level`: the level has several peers, or it is level 0 of a single rank.
template <topology Topology>
constexpr bool has_hop(const Topology& ranks, int level) {
    return extent(ranks, level) > 1 || (level == 0 && ranks.groups() == 1);
}

/// True if each rank's slot has the rank's number, because at most one level has several peers.
template <topology Topology>
constexpr bool slots_are_ranks(const Topology& ranks) {
    int several = 0;
    for (int l = 0; l != Topology::levels; ++l) several += extent(ranks, l) > 1 ? 1 : 0;
    return several <= 1;
}

/// Slot of `rank`.
template <topology Topology>
constexpr int slot_of(const Topology& ranks, int rank) {
    return ranks.index_of(rank) * ranks.groups() + ranks.group_of(rank);
}

/// Number of slots that differ in the coordinates of levels after `level` only. These slots are contiguous.
template <topology Topology>
constexpr int slots_beyond(const Topology& ranks, int level) {
    int slots = 1;
    for (int l = level + 1; l < Topology::levels; ++l) slots *= extent(ranks, l);
    return slots;
}

/// Number of ranks that differ in the coordinates of levels 0 to `level` only, in groups of the largest size.
template <topology Topology>
constexpr int ranks_within(const Topology& ranks, int level) {
    int within = 1;
    for (int l = 0; l <= level; ++l) within *= extent(ranks, l);
    return within;
}

/// Level of the slowest links between ranks `a` and `b`: the last in which their coordinates differ.
template <topology Topology>
constexpr int level_between(const Topology& ranks, int a, int b) {
    const auto coordinate = [&](int level, int rank) {
        return ranks.group_of(rank) / slots_beyond(ranks, level) % extent(ranks, level);
    };
    int level = Topology::levels - 1;
    while (level > 0 && coordinate(level, a) == coordinate(level, b)) --level;
    return level;
}

namespace detail {
/// A value for each of `Levels` levels.
template <class T, int Levels>
using by_level = std::array<T, static_cast<std::size_t>(Levels)>;

/// Hash (`topology_digest`) of `ranks`: of the group and index of every rank, and of the numbers of groups along levels
/// beyond 1.
template <class Topology>
constexpr std::uint64_t digest_of_places(const Topology& ranks) {
    std::uint64_t digest = 0xcbf29ce484222325;
    const auto add = [&](int n) { digest = (digest ^ static_cast<std::uint64_t>(n)) * 0x100000001b3; };
    for (int r = 0; r != ranks.size(); ++r) {
        add(ranks.group_of(r));
        add(ranks.index_of(r));
    }
    for (int l = 1; l < Topology::levels - 1; ++l) {
        if (slots_beyond(ranks, l) != 1) add(slots_beyond(ranks, l));
    }
    return digest;
}
}  // namespace detail

/// Hash of the group and index of every rank, and of the levels between groups. Equal for topologies of any types that
/// place ranks and links alike, and almost surely not for others. Calls the topology's member `digest()` if there is
/// one. Otherwise visits all ranks, in each call of a collective.
template <topology Topology>
constexpr std::uint64_t topology_digest(const Topology& ranks) {
    if constexpr (requires { ranks.digest(); }) {
        return ranks.digest();
    } else {
        return detail::digest_of_places(ranks);
    }
}

namespace detail {
/// Returns `number`. Throws precondition_error in the name of `where` unless `number` is from 0 to `end` - 1. `what` is
/// the noun for `number` in the error, such as "a rank".
constexpr int existing(std::string_view where, const char* what, int end, int number) {
    if (number >= 0 && number < end) return number;
    throw precondition_error(where, std::string(what) + " from 0 to " + std::to_string(end - 1),
                             std::to_string(number));
}
/// Returns `rank`. Throws precondition_error in the name of `where` unless `rank` is from 0 to `ranks` - 1.
constexpr int existing_rank(std::string_view where, int ranks, int rank) {
    return existing(where, "a rank", ranks, rank);
}
}  // namespace detail

}  // namespace zeropp
