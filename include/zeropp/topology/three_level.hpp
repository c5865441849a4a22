#pragma once
/// \file
/// A topology of nodes in sites.

#include <zeropp/core/error.hpp>
#include <zeropp/core/text.hpp>
#include <zeropp/topology/columns.hpp>
#include <zeropp/topology/topology.hpp>
#include <zeropp/topology/two_level.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace zeropp {

/// A topology of sites of nodes: links are fast within a node, slower between the nodes of a site, and slowest between
/// sites. All sites have equally many nodes; with several sites, all nodes have equally many ranks. Collectives take
/// three hops. With one site, collectives take two hops, and nodes may differ in size. A site may also be a pod of
/// NVLink domains.
class three_level {
public:
    static constexpr int levels = 3;

    three_level() : three_level(two_level()) {}

    /// Makes one site of `nodes`, in which every rank keeps its node and index.
    three_level(two_level nodes) : nodes_(std::move(nodes)), sites_(1, nodes_.groups()) { number_slots(); }

    /// Makes `sites` sites of `nodes_per_site` nodes of `ranks_per_node` ranks, all of consecutive ranks. Throws
    /// precondition_error unless the three numbers are positive, and their product is an int.
    three_level(int sites, int nodes_per_site, int ranks_per_node)
        : nodes_(consecutive(sites, nodes_per_site, ranks_per_node)), sites_(sites, nodes_per_site) {
        number_slots();
    }

    /// Puts group n of `nodes` in site `site_of_node[n]`. Any integers name sites, and a site's nodes need not be
    /// consecutive. Throws precondition_error in the name of `where` unless each node has a site and all sites have
    /// equally many nodes. With several sites, also throws unless all nodes have equally many ranks.
    three_level(two_level nodes, std::span<const int> site_of_node, std::string_view where = "three_level")
        : nodes_(std::move(nodes)), sites_(sites_of(nodes_, site_of_node, where)) {
        number_slots();
    }

    int size() const { return nodes_.size(); }
    /// Number of nodes. A node's number is its index in its site, times the number of sites, plus its site's number.
    /// Lowest ranks number the sites, and the nodes in a site.
    int groups() const { return nodes_.groups(); }
    int group_size(int group) const { return nodes_.group_size(node_of(group)); }
    int largest_group_size() const { return nodes_.largest_group_size(); }
    int group_of(int rank) const { return slot_of(sites_, nodes_.group_of(rank)); }
    int index_of(int rank) const { return nodes_.index_of(rank); }
    int rank_of(int group, int index) const { return nodes_.rank_of(node_of(group), index); }
    /// At level 1, number of nodes of a site; at level 2, number of sites.
    int extent(int level) const { return level == 1 ? sites_.group_size(0) : sites_.groups(); }
    /// The nodes without sites: a two_level, which can shrink to any ranks.
    const two_level& nodes() const { return nodes_; }

    /// Topology of the ranks `survivors`, in this order, with new numbers from 0. Each rank stays on its node and site.
    /// Throws precondition_error if `survivors` is empty, or has a rank that this topology lacks. Also throws unless
    /// all sites keep equally many nodes and, if several are left, all nodes equally many ranks. The two_level
    /// `nodes()` shrinks to any ranks.
    three_level shrink(std::span<const int> survivors) const {
        std::vector<int> node_of_rank, site_of_node;
        for (const int rank : survivors) {
            node_of_rank.push_back(nodes_.group_of(detail::existing_rank("three_level", size(), rank)));
        }
        two_level nodes{std::span<const int>(node_of_rank)};
        for (int node = 0; node != nodes.groups(); ++node) {
            const int first = nodes.rank_of(node, 0);
            site_of_node.push_back(sites_.group_of(node_of_rank[static_cast<std::size_t>(first)]));
        }
        return three_level(std::move(nodes), site_of_node);
    }

    slice_order order() const {
        if (sites_.groups() == 1) return nodes_.order();
        return {.groups = groups(), .table = rank_of_slot_.data()};
    }
    /// Hash of this topology, see topology_digest.
    std::uint64_t digest() const { return digest_; }

    friend bool operator==(const three_level&, const three_level&) = default;

private:
    static two_level consecutive(int sites, int nodes_per_site, int ranks_per_node) {
        constexpr std::int64_t most = std::numeric_limits<int>::max();
        const bool positive = sites > 0 && nodes_per_site > 0 && ranks_per_node > 0;
        if (!positive || std::int64_t{sites} * nodes_per_site > most / ranks_per_node) {
            throw precondition_error("three_level",
                                     "at least 1 site, node and rank, and at most " + std::to_string(most) + " ranks",
                                     std::to_string(sites) + " x " + std::to_string(nodes_per_site) + " x " +
                                         std::to_string(ranks_per_node));
        }
        return {sites * nodes_per_site, ranks_per_node};
    }
    static two_level sites_of(const two_level& nodes, std::span<const int> site_of_node, std::string_view where) {
        if (site_of_node.size() != static_cast<std::size_t>(nodes.groups())) {
            throw precondition_error(where, "a site for each of the " + std::to_string(nodes.groups()) + " nodes",
                                     std::to_string(site_of_node.size()));
        }
        two_level sites(site_of_node);
        if (!has_equal_groups(sites)) {
            std::vector<int> sizes;
            for (int site = 0; site != sites.groups(); ++site) sizes.push_back(sites.group_size(site));
            throw precondition_error(where, "as many nodes in each site",
                                     "sites of " + detail::text_of(sizes) + " nodes");
        }
        if (sites.groups() > 1 && !has_equal_groups(nodes)) {
            throw precondition_error(where, "nodes of equal size in several sites", group_sizes_text(nodes));
        }
        return sites;
    }

    void number_slots() {
        for (int slot = 0; sites_.groups() > 1 && slot != size(); ++slot) {
            rank_of_slot_.push_back(rank_of(slot % groups(), slot / groups()));
        }
        digest_ = detail::digest_of_places(*this);
    }
    int node_of(int group) const { return sites_.rank_of(group % sites_.groups(), group / sites_.groups()); }

    two_level nodes_;
    two_level sites_;                // topology with nodes as ranks, and sites as groups
    std::vector<int> rank_of_slot_;  // by slot; empty with one site
    std::uint64_t digest_ = 0;
};

}  // namespace zeropp
