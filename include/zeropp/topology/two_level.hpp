#pragma once
/// \file
/// A topology of nodes with several ranks.

#include <zeropp/core/error.hpp>
#include <zeropp/topology/topology.hpp>

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace zeropp {

/// Nodes of equal size, with fast intra-node and slow inter-node links. Collectives take two hops.
class two_level {
public:
    two_level() : two_level(1, 1) {}

    /// Makes `nodes` nodes of `ranks_per_node` consecutive ranks. Throws precondition_error unless both are positive.
    two_level(int nodes, int ranks_per_node) : two_level(std::span<const int>(consecutive(nodes, ranks_per_node))) {}

    /// Puts rank r on node `node_of_rank[r]`. Any integers name nodes, and a node's ranks need not be consecutive.
    /// Throws precondition_error if there are no ranks, or if nodes differ in size; the text lists the sizes.
    [[gnu::noinline]] explicit two_level(std::span<const int> node_of_rank) {
        if (node_of_rank.empty()) throw precondition_error("two_level", "at least 1 rank", "none");
        std::vector<int> nodes(node_of_rank.begin(), node_of_rank.end());
        std::sort(nodes.begin(), nodes.end());
        nodes.erase(std::unique(nodes.begin(), nodes.end()), nodes.end());
        std::vector<int> group_of_node(nodes.size(), -1);
        std::vector<int> ranks_on_node(nodes.size(), 0);
        for (const int name : node_of_rank) {
            const auto node =
                static_cast<std::size_t>(std::lower_bound(nodes.begin(), nodes.end(), name) - nodes.begin());
            if (group_of_node[node] < 0) group_of_node[node] = groups_++;
            position_.push_back({group_of_node[node], ranks_on_node[node]++});
        }
        const auto uneven = [&](int ranks) { return ranks != ranks_on_node.front(); };
        if (std::any_of(ranks_on_node.begin(), ranks_on_node.end(), uneven)) throw_uneven(nodes, ranks_on_node);
        group_size_ = ranks_on_node.front();
        ranks_.resize(position_.size());
        for (std::size_t rank = 0; rank != position_.size(); ++rank) {
            ranks_[static_cast<std::size_t>(position_[rank].index * groups_ + position_[rank].group)] =
                static_cast<int>(rank);
        }
        group_stride_ = groups_ > 1 ? rank_of(1, 0) : size();
        index_stride_ = group_size_ > 1 ? rank_of(0, 1) : 1;
        for (int slot = 0; slot != size(); ++slot) {
            regular_ = regular_ && strides().rank(slot) == ranks_[static_cast<std::size_t>(slot)];
        }
    }

    /// Divides `size` ranks into nodes of `ranks_per_node` consecutive ranks. Throws precondition_error unless both are
    /// positive and the division is exact.
    static two_level of_size(int size, int ranks_per_node) {
        if (ranks_per_node < 1 || size < 1 || size % ranks_per_node != 0) {
            throw precondition_error("two_level",
                                     "a number of ranks per node that divides the " + std::to_string(size) + " ranks",
                                     std::to_string(ranks_per_node));
        }
        return {size / ranks_per_node, ranks_per_node};
    }

    int size() const { return groups_ * group_size_; }
    int groups() const { return groups_; }
    int group_size() const { return group_size_; }
    int group_of(int rank) const { return position_[static_cast<std::size_t>(rank)].group; }
    int index_of(int rank) const { return position_[static_cast<std::size_t>(rank)].index; }
    int rank_of(int group, int index) const { return ranks_[static_cast<std::size_t>(index * groups_ + group)]; }

    slice_order order() const {
        slice_order order = strides();
        if (!regular_) order.table = ranks_.data();
        return order;
    }

    friend bool operator==(const two_level&, const two_level&) = default;

private:
    struct position {
        int group;
        int index;
        friend bool operator==(const position&, const position&) = default;
    };

    static std::vector<int> consecutive(int nodes, int ranks_per_node) {
        if (nodes < 1 || ranks_per_node < 1) {
            throw precondition_error("two_level", "at least 1 node of at least 1 rank",
                                     std::to_string(nodes) + " nodes of " + std::to_string(ranks_per_node));
        }
        std::vector<int> node_of_rank;
        for (int node = 0; node != nodes; ++node) {
            node_of_rank.insert(node_of_rank.end(), static_cast<std::size_t>(ranks_per_node), node);
        }
        return node_of_rank;
    }

    [[noreturn, gnu::cold]] static void throw_uneven(const std::vector<int>& nodes,
                                                     const std::vector<int>& ranks_on_node) {
        std::string counts;
        for (std::size_t node = 0; node != nodes.size(); ++node) {
            counts += (counts.empty() ? "node " : ", node ") + std::to_string(nodes[node]) + " with " +
                      std::to_string(ranks_on_node[node]);
        }
        throw precondition_error("two_level", "the same number of ranks on every node", counts);
    }

    slice_order strides() const {
        return {.groups = groups_, .group_stride = group_stride_, .index_stride = index_stride_};
    }

    int groups_ = 0;
    int group_size_ = 0;
    int group_stride_ = 0;
    int index_stride_ = 0;
    bool regular_ = true;             // the strides give every rank
    std::vector<position> position_;  // by rank
    std::vector<int> ranks_;          // by slot
};

}  // namespace zeropp
