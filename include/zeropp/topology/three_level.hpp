#pragma once
/// \file
/// A topology of nodes in sites.

#include <zeropp/core/error.hpp>
#include <zeropp/core/text.hpp>
#include <zeropp/topology/topology.hpp>
#include <zeropp/topology/two_level.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <set>
#include <span>
#include <string>
#include <vector>

namespace zeropp {

/// Sites of nodes of ranks: links are fast within a node, slower between the nodes of a site, and slowest between
/// sites. All sites have as many nodes, and all nodes as many ranks. Collectives take three hops. Other names fit as
/// well: pods of NVLink domains, islands of nodes.
class three_level {
public:
    static constexpr int levels = 3;

    three_level() : three_level(1, 1, 1) {}

    /// Makes `sites` sites of `nodes_per_site` nodes of `ranks_per_node` ranks, all of consecutive ranks. Throws
    /// precondition_error unless all are positive, and their product is an int.
    three_level(int sites, int nodes_per_site, int ranks_per_node)
        : sites_(sites), nodes_(nodes_per_site), ranks_(ranks_per_node) {
        constexpr std::int64_t most = std::numeric_limits<int>::max();
        const bool positive = sites > 0 && nodes_per_site > 0 && ranks_per_node > 0;
        if (!positive || std::int64_t{sites} * nodes_per_site > most / ranks_per_node) {
            throw precondition_error("three_level",
                                     "at least 1 site, node and rank, and at most " + std::to_string(most) + " ranks",
                                     std::to_string(sites) + " x " + std::to_string(nodes_per_site) + " x " +
                                         std::to_string(ranks_per_node));
        }
        for (int index = 0; index != ranks_; ++index) {
            for (int group = 0; group != groups(); ++group) rank_of_slot_.push_back(rank_of(group, index));
        }
        digest_ = detail::digest_of_places(*this);
    }

    int size() const { return sites_ * nodes_ * ranks_; }
    /// Number of nodes. A node's number is that in its site, times the number of sites, and its site's.
    int groups() const { return sites_ * nodes_; }
    int group_size(int) const { return ranks_; }
    int largest_group_size() const { return ranks_; }
    int group_of(int rank) const { return rank / ranks_ % nodes_ * sites_ + rank / (ranks_ * nodes_); }
    int index_of(int rank) const { return rank % ranks_; }
    int rank_of(int group, int index) const { return (group % sites_ * nodes_ + group / sites_) * ranks_ + index; }
    /// Number of nodes of a site at level 1, of sites at level 2.
    int extent(int level) const { return level == 1 ? nodes_ : sites_; }
    /// The nodes without sites: any ranks survive on these (`two_level::shrink`).
    two_level nodes() const { return {groups(), ranks_}; }

    /// Topology of the ranks `survivors`, in this order, with new numbers from 0. Each stays on its node and site.
    /// Throws precondition_error for others than of this topology, and unless they follow one another in sites of as
    /// many nodes of as many ranks: `nodes()` shrinks to others.
    three_level shrink(std::span<const int> survivors) const {
        std::set<int> sites, nodes;
        for (const int rank : survivors) {
            nodes.insert(detail::existing_rank("three_level", size(), rank) / ranks_);
            sites.insert(rank / (ranks_ * nodes_));
        }
        const auto count = [](const auto& of) { return std::max(static_cast<int>(of.size()), 1); };
        const three_level next(count(sites), std::max(count(nodes) / count(sites), 1),
                               std::max(count(survivors) / count(nodes), 1));
        bool equal = next.size() == static_cast<int>(survivors.size());
        for (int r = 1; equal && r != next.size(); ++r) {
            const auto old = survivors.subspan(static_cast<std::size_t>(r) - 1, 2);
            equal = level_between(next, r - 1, r) == level_between(*this, old[0], old[1]);
        }
        if (equal) return next;
        throw precondition_error("three_level", "survivors on sites of as many nodes of as many ranks",
                                 detail::text_of(survivors) + "; `nodes()` shrinks to any");
    }

    slice_order order() const { return {.groups = groups(), .table = rank_of_slot_.data()}; }
    /// The `topology_digest`.
    std::uint64_t digest() const { return digest_; }

    friend bool operator==(const three_level&, const three_level&) = default;

private:
    int sites_;
    int nodes_;
    int ranks_;
    std::vector<int> rank_of_slot_;
    std::uint64_t digest_ = 0;
};

}  // namespace zeropp
