#pragma once

#include <zeropp/core/error.hpp>
#include <zeropp/core/text.hpp>
#include <zeropp/topology/columns.hpp>
#include <zeropp/topology/topology.hpp>
#include <zeropp/topology/two_level.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace zeropp_c {

/// Nodes of any sizes in one site, or of one size in several sites. One type for both, so that each collective is
/// compiled once. In one site, it has the numbers of groups, the order and the digest of `two_level`.
class nodes_in_sites {
public:
    static constexpr int levels = 3;

    nodes_in_sites() = default;

    /// Rank r is on node `node_of_rank[r]`, and node n in site n / `nodes_per_site`. With 0, all nodes are in one site,
    /// and any integers name them. Throws precondition_error unless sites have as many nodes each, with numbers from 0,
    /// and nodes of several sites as many ranks.
    nodes_in_sites(std::span<const int> node_of_rank, int nodes_per_site) : nodes_(node_of_rank) {
        using zeropp::precondition_error;
        if (nodes_per_site == 0) return;
        if (nodes_per_site < 0) {
            throw precondition_error("zeropp_c", "a number of nodes in each site, or 0 for one site",
                                     std::to_string(nodes_per_site));
        }
        std::vector<int> numbers;  // of sites, by lowest rank
        std::vector<std::vector<int>> nodes_of_site;
        for (int node = 0; node != nodes_.groups(); ++node) {
            const int number = node_of_rank[at(nodes_.rank_of(node, 0))];
            if (number < 0) throw precondition_error("zeropp_c", "numbers of nodes from 0", std::to_string(number));
            const auto known = std::ranges::find(numbers, number / nodes_per_site);
            const auto site = static_cast<std::size_t>(known - numbers.begin());
            if (known == numbers.end()) {
                numbers.push_back(number / nodes_per_site);
                nodes_of_site.emplace_back();
            }
            nodes_of_site[site].push_back(node);
        }
        if (numbers.size() == 1) return;
        sites_ = static_cast<int>(numbers.size());
        std::vector<int> sizes;
        for (const auto& nodes : nodes_of_site) sizes.push_back(static_cast<int>(nodes.size()));
        if (std::ranges::count(sizes, sizes[0]) != sites_) {
            throw precondition_error("zeropp_c", "as many nodes in each site",
                                     "sites of " + zeropp::detail::text_of(sizes) + " nodes");
        }
        if (!has_equal_groups(nodes_)) {
            throw precondition_error("zeropp_c", "nodes of equal size in several sites", group_sizes_text(nodes_));
        }
        group_of_node_.resize(at(nodes_.groups()));
        for (int group = 0; group != nodes_.groups(); ++group) {
            node_of_group_.push_back(nodes_of_site[at(group % sites_)][at(group / sites_)]);
            group_of_node_[at(node_of_group_.back())] = group;
        }
        for (int slot = 0; slot != size(); ++slot) rank_of_slot_.push_back(rank_of(slot % groups(), slot / groups()));
        digest_ = zeropp::detail::digest_of_places(*this);
    }

    int size() const { return nodes_.size(); }
    int groups() const { return nodes_.groups(); }
    int group_size(int group) const { return nodes_.group_size(sites_ == 1 ? group : 0); }
    int largest_group_size() const { return nodes_.largest_group_size(); }
    int group_of(int rank) const {
        const int node = nodes_.group_of(rank);
        return sites_ == 1 ? node : group_of_node_[at(node)];
    }
    int index_of(int rank) const { return nodes_.index_of(rank); }
    int rank_of(int group, int index) const {
        return nodes_.rank_of(sites_ == 1 ? group : node_of_group_[at(group)], index);
    }
    int extent(int level) const { return level == 1 ? groups() / sites_ : sites_; }
    zeropp::slice_order order() const {
        if (sites_ == 1) return nodes_.order();
        return {.groups = groups(), .table = rank_of_slot_.data()};
    }
    std::uint64_t digest() const { return sites_ == 1 ? nodes_.digest() : digest_; }

    friend bool operator==(const nodes_in_sites&, const nodes_in_sites&) = default;

private:
    static std::size_t at(int number) { return static_cast<std::size_t>(number); }

    zeropp::two_level nodes_;
    int sites_ = 1;
    // With several sites.
    std::vector<int> group_of_node_;
    std::vector<int> node_of_group_;
    std::vector<int> rank_of_slot_;
    std::uint64_t digest_ = 0;
};

}  // namespace zeropp_c
