#pragma once
/// \file
/// Laws of topologies.

#include "support/catch.hpp"

#include <zeropp/topology/columns.hpp>
#include <zeropp/topology/topology.hpp>

#include <cstddef>
#include <memory>
#include <set>
#include <utility>
#include <vector>

namespace zeropp_test {

/// True if (group, index) and rank map to each other, for every rank and every place.
template <zeropp::topology Topology>
bool ranks_and_places_are_inverse(const Topology& t) {
    for (int rank = 0; rank != t.size(); ++rank) {
        const int group = t.group_of(rank);
        const int index = t.index_of(rank);
        if (group < 0 || group >= t.groups() || index < 0 || index >= t.group_size(group)) return false;
        if (t.rank_of(group, index) != rank) return false;
    }
    std::set<int> ranks;
    for (int group = 0; group != t.groups(); ++group) {
        for (int index = 0; index != t.group_size(group); ++index) {
            const int rank = t.rank_of(group, index);
            if (rank < 0 || rank >= t.size() || t.group_of(rank) != group || t.index_of(rank) != index) return false;
            ranks.insert(rank);
        }
    }
    return static_cast<int>(ranks.size()) == t.size();
}

/// True if indices follow the ranks in each group, and groups follow their lowest ranks; with three and more levels,
/// groups of one coordinate of the last level do.
template <zeropp::topology Topology>
bool places_follow_ranks(const Topology& t) {
    for (int group = 0; group != t.groups(); ++group) {
        const int before = group - (Topology::levels > 2 ? zeropp::extent(t, Topology::levels - 1) : 1);
        if (before >= 0 && t.rank_of(before, 0) >= t.rank_of(group, 0)) return false;
        for (int index = 1; index != t.group_size(group); ++index) {
            if (t.rank_of(group, index - 1) >= t.rank_of(group, index)) return false;
        }
    }
    return t.rank_of(0, 0) == 0;
}

/// True if slot = index * groups + group, for every slot of `order`; slots of places without a rank say so.
template <zeropp::topology Topology>
bool is_order_of(const zeropp::slice_order& order, const Topology& t) {
    for (int group = 0; group != t.groups(); ++group) {
        for (int index = 0; index != zeropp::largest_group_size(t); ++index) {
            const int rank = order.rank(index * t.groups() + group);
            if (index < t.group_size(group) ? rank != t.rank_of(group, index) : rank < t.size()) return false;
        }
    }
    return true;
}

/// True if the extents of levels from 1 on are of all groups, and if peers of a level are apart in its coordinate only.
template <zeropp::topology Topology>
bool levels_are_a_grid(const Topology& t) {
    int groups = 1;
    for (int level = 1; level < Topology::levels; ++level) groups *= zeropp::extent(t, level);
    if (groups != t.groups() || zeropp::extent(t, 0) != zeropp::largest_group_size(t)) return false;
    for (int level = 0; level != Topology::levels && zeropp::has_equal_groups(t); ++level) {
        for (int rank = 0; rank != t.size(); ++rank) {
            const std::vector<int> peers = zeropp::peer_ranks(t, level, rank);
            const int apart = zeropp::slots_beyond(t, level);
            const int own = zeropp::slot_of(t, rank) / apart % zeropp::extent(t, level);
            if (static_cast<int>(peers.size()) != zeropp::extent(t, level)) return false;
            for (int p = 0; p != zeropp::extent(t, level); ++p) {
                const int slot = zeropp::slot_of(t, rank) + (p - own) * apart;
                if (t.order().rank(slot) != peers[static_cast<std::size_t>(p)]) return false;
            }
        }
    }
    return true;
}

/// True if slots and places are the ranks themselves.
template <zeropp::topology Topology>
bool is_identity(const Topology& t) {
    for (int rank = 0; rank != t.size(); ++rank) {
        if (t.order().rank(rank) != rank) return false;
        if (zeropp::slot_of(t, rank) != rank) return false;
    }
    return true;
}

/// Copies and moved-to values equal the original; their order outlives it.
template <zeropp::topology Topology>
void is_a_value(const Topology& t) {
    auto original = std::make_unique<Topology>(t);
    Topology copy(*original);
    Topology assigned;
    assigned = *original;
    CHECK(copy == *original);
    CHECK(assigned == *original);
    if (original->order().table != nullptr) {
        CHECK(copy.order().table != original->order().table);
        CHECK(assigned.order().table != original->order().table);
    }
    original.reset();
    CHECK(is_order_of(copy.order(), t));
    CHECK(is_order_of(assigned.order(), t));
    const Topology moved(std::move(copy));
    CHECK(moved == t);
    CHECK(is_order_of(moved.order(), t));
}

template <zeropp::topology Topology>
void topology_laws(const Topology& t) {
    CHECK(t.groups() > 0);
    int size = 0;
    for (int group = 0; group != t.groups(); ++group) {
        CHECK(t.group_size(group) > 0);
        size += t.group_size(group);
    }
    CHECK(t.size() == size);
    CHECK(ranks_and_places_are_inverse(t));
    CHECK(places_follow_ranks(t));
    CHECK(is_order_of(t.order(), t));
    CHECK(levels_are_a_grid(t));
    if (zeropp::slots_are_ranks(t)) CHECK(is_identity(t));
    is_a_value(t);
}

}  // namespace zeropp_test
