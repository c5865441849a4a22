#pragma once
/// \file
/// The topology concept: who is who. Integers only, no communication.

#include <zeropp/topology/slice_order.hpp>

#include <concepts>

namespace zeropp {

/// A map between the ranks of a world and (group, index in group). Groups are nodes: links inside them are fast. All
/// groups have the same size. Groups are numbered by their lowest rank and indices follow the ranks, so that a single
/// group, or groups of one, number the ranks as the world does. A regular value.
///   `size()`               ranks in all = groups() * group_size()
///   `groups()`             groups
///   `group_size()`         ranks in each group
///   `group_of(rank)`       in [0, groups())
///   `index_of(rank)`       in [0, group_size())
///   `rank_of(group, index)` the rank back
///   `order()`              the same map as a slice_order, which refers to the topology's memory
template <class T>
concept topology = std::regular<T> && requires(const T& t, int i) {
    { t.size() } -> std::same_as<int>;
    { t.groups() } -> std::same_as<int>;
    { t.group_size() } -> std::same_as<int>;
    { t.group_of(i) } -> std::same_as<int>;
    { t.index_of(i) } -> std::same_as<int>;
    { t.rank_of(i, i) } -> std::same_as<int>;
    { t.order() } -> std::same_as<slice_order>;
};

/// Whether a reduction over these ranks has a hop inside groups: not where groups of one leave it to the hop across,
/// but a single rank takes it too.
template <topology Topology>
constexpr bool has_hop_inside(const Topology& ranks) {
    return ranks.group_size() > 1 || ranks.groups() == 1;
}

/// Whether it has a hop across groups.
template <topology Topology>
constexpr bool has_hop_across(const Topology& ranks) {
    return ranks.groups() > 1;
}

}  // namespace zeropp
