#pragma once

#include <zeropp/core/error.hpp>
#include <zeropp/topology/columns.hpp>
#include <zeropp/topology/three_level.hpp>
#include <zeropp/topology/topology.hpp>
#include <zeropp/topology/two_level.hpp>

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <variant>

namespace zero3_gpt {

/// Nodes of any sizes on one site, or equal nodes on several sites. A topology of three levels, so that one engine
/// serves both: with one site, collectives skip the third.
class nodes_in_sites {
public:
    static constexpr int levels = 3;

    nodes_in_sites() = default;
    /// One site.
    nodes_in_sites(zeropp::two_level nodes) : ranks_(std::move(nodes)) {}
    /// Divides `nodes` over `sites`, in order. Throws zeropp::precondition_error unless that is exact and, with several
    /// sites, nodes have equal numbers of consecutive ranks.
    nodes_in_sites(int sites, const zeropp::two_level& nodes) : nodes_in_sites(nodes) {
        if (sites < 1 || nodes.groups() % sites != 0) {
            throw zeropp::precondition_error("sites", "a divisor of the " + std::to_string(nodes.groups()) + " nodes",
                                             std::to_string(sites));
        }
        if (sites == 1) return;
        const int ranks_per_node = nodes.group_size(0);
        if (!has_equal_groups(nodes) || nodes != zeropp::two_level(nodes.groups(), ranks_per_node)) {
            throw zeropp::precondition_error("sites", "nodes of equal numbers of consecutive ranks",
                                             group_sizes_text(nodes) +
                                                 (has_equal_groups(nodes) ? ", not all consecutive" : ""));
        }
        ranks_ = zeropp::three_level(sites, nodes.groups() / sites, ranks_per_node);
    }

    int sites() const { return extent(2); }
    /// The same sites, divided into secondary groups of `ranks` consecutive ranks in place of nodes. Throws
    /// zeropp::precondition_error unless that is exact.
    nodes_in_sites in_groups(int ranks) const {
        const int of_site = size() / sites();
        if (ranks < 1 || of_site % ranks != 0) {
            throw zeropp::precondition_error("zero_hpz_partition_size",
                                             "a divisor of the " + std::to_string(of_site) +
                                                 (sites() == 1 ? " ranks" : " ranks of a site"),
                                             std::to_string(ranks));
        }
        return {sites(), zeropp::two_level(size() / ranks, ranks)};
    }
    /// As a two_level's. Throws zeropp::precondition_error if there are several sites: they would become unequal.
    nodes_in_sites shrink(std::span<const int> survivors) const {
        if (const auto* const nodes = std::get_if<zeropp::two_level>(&ranks_)) return nodes->shrink(survivors);
        throw zeropp::precondition_error("sites", "1, to choose some of the ranks", std::to_string(sites()));
    }

    int size() const {
        return std::visit([](const auto& r) { return r.size(); }, ranks_);
    }
    int groups() const {
        return std::visit([](const auto& r) { return r.groups(); }, ranks_);
    }
    int group_size(int group) const {
        return std::visit([=](const auto& r) { return r.group_size(group); }, ranks_);
    }
    int largest_group_size() const {
        return std::visit([](const auto& r) { return r.largest_group_size(); }, ranks_);
    }
    int group_of(int rank) const {
        return std::visit([=](const auto& r) { return r.group_of(rank); }, ranks_);
    }
    int index_of(int rank) const {
        return std::visit([=](const auto& r) { return r.index_of(rank); }, ranks_);
    }
    int rank_of(int group, int index) const {
        return std::visit([=](const auto& r) { return r.rank_of(group, index); }, ranks_);
    }
    /// Number of nodes of a site at level 1, of sites at level 2.
    int extent(int level) const {
        return std::visit([=](const auto& r) { return level < r.levels ? zeropp::extent(r, level) : 1; }, ranks_);
    }
    zeropp::slice_order order() const {
        return std::visit([](const auto& r) { return r.order(); }, ranks_);
    }
    /// The `topology_digest`.
    std::uint64_t digest() const {
        return std::visit([](const auto& r) { return r.digest(); }, ranks_);
    }

    friend bool operator==(const nodes_in_sites&, const nodes_in_sites&) = default;

private:
    std::variant<zeropp::two_level, zeropp::three_level> ranks_;
};

}  // namespace zero3_gpt
