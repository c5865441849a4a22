#pragma once
/// \file
/// Laws of topologies.

#include "support/catch.hpp"

#include <zeropp/topology/topology.hpp>

#include <memory>
#include <set>
#include <utility>

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

/// True if indices follow the ranks in each group, and groups follow their lowest ranks.
template <zeropp::topology Topology>
bool places_follow_ranks(const Topology& t) {
    for (int group = 0; group != t.groups(); ++group) {
        if (group > 0 && t.rank_of(group - 1, 0) >= t.rank_of(group, 0)) return false;
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

/// True if slots and places are the ranks themselves.
template <zeropp::topology Topology>
bool is_identity(const Topology& t) {
    for (int rank = 0; rank != t.size(); ++rank) {
        if (t.order().rank(rank) != rank) return false;
        if (t.group_of(rank) + t.index_of(rank) != rank) return false;
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
    if (t.groups() == 1 || zeropp::largest_group_size(t) == 1) CHECK(is_identity(t));
    is_a_value(t);
}

}  // namespace zeropp_test
