#pragma once
/// \file
/// Nodes of several ranks.

#include <zeropp/core/error.hpp>
#include <zeropp/topology/topology.hpp>

#include <algorithm>
#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace zeropp {

/// Ranks in nodes of equal size, with fast links inside a node and slow ones across: collectives take two hops.
class two_level {
public:
    two_level() : two_level(1, 1) {}

    /// `nodes` nodes of `ranks_per_node` consecutive ranks each. Throws precondition_error unless both are positive.
    two_level(int nodes, int ranks_per_node) : two_level(std::span<const int>(consecutive(nodes, ranks_per_node))) {}

    /// Rank r is on node node_of_rank[r]; any integers name the nodes, and the ranks of a node need not be consecutive.
    /// Throws precondition_error that says which node has how many ranks unless all have the same number.
    explicit two_level(std::span<const int> node_of_rank) {
        if (node_of_rank.empty()) throw precondition_error("two_level", "at least 1 rank", "none");
        std::map<int, int> group_named;
        std::vector<std::vector<int>> members;
        for (std::size_t rank = 0; rank != node_of_rank.size(); ++rank) {
            const auto [place, is_new] = group_named.try_emplace(node_of_rank[rank], static_cast<int>(members.size()));
            if (is_new) members.emplace_back();
            auto& group = members[static_cast<std::size_t>(place->second)];
            position_.push_back({place->second, static_cast<int>(group.size())});
            group.push_back(static_cast<int>(rank));
        }
        groups_ = static_cast<int>(members.size());
        group_size_ = static_cast<int>(members.front().size());
        require_even(group_named, members);
        group_stride_ = groups_ > 1 ? members[1][0] : size();
        index_stride_ = group_size_ > 1 ? members[0][1] : 1;
        for (int slot = 0; slot != size(); ++slot) {
            ranks_.push_back(
                members[static_cast<std::size_t>(slot % groups_)][static_cast<std::size_t>(slot / groups_)]);
            regular_ = regular_ && strides().rank(slot) == ranks_.back();
        }
    }

    /// Divides `size` ranks into nodes of `ranks_per_node` consecutive ranks. Throws precondition_error unless it divides.
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

    void require_even(const std::map<int, int>& group_named, const std::vector<std::vector<int>>& members) const {
        const auto uneven = [&](const auto& group) { return group.size() != members.front().size(); };
        if (std::none_of(members.begin(), members.end(), uneven)) return;
        std::string counts;
        for (const auto& [name, group] : group_named) {
            counts += (counts.empty() ? "node " : ", node ") + std::to_string(name) + " with " +
                      std::to_string(members[static_cast<std::size_t>(group)].size());
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
    bool regular_ = true;             // the strides say every rank
    std::vector<position> position_;  // by rank
    std::vector<int> ranks_;          // by slot
};

static_assert(topology<two_level>);

}  // namespace zeropp
