#pragma once
/// \file
/// A topology of nodes with several ranks.

#include <zeropp/core/error.hpp>
#include <zeropp/topology/topology.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <span>
#include <string>
#include <vector>

namespace zeropp {

/// A topology of nodes, with fast intra-node and slow inter-node links. Nodes may differ in size. Collectives take two
/// hops.
class two_level {
public:
    static constexpr int levels = 2;

    two_level() : two_level(1, 1) {}

    /// Makes `nodes` nodes of `ranks_per_node` consecutive ranks. Throws precondition_error unless both are positive.
    two_level(int nodes, int ranks_per_node) : two_level(std::span<const int>(consecutive(nodes, ranks_per_node))) {}

    /// Puts rank r on node `node_of_rank[r]`. Any integers name nodes, and a node's ranks need not be consecutive.
    /// Throws precondition_error if there are no ranks, or more slots (`slot_count`) than an int counts.
    explicit two_level(std::span<const int> node_of_rank) : two_level(node_of_rank, false) {}

    /// Makes a node of `ranks_of_node[i]` consecutive ranks for each i. Throws precondition_error unless there are
    /// nodes and all have ranks.
    static two_level of_nodes(std::span<const int> ranks_of_node) {
        return two_level(std::span<const int>(consecutive(ranks_of_node)));
    }
    static two_level of_nodes(std::initializer_list<int> ranks_of_node) {
        return of_nodes(std::span(ranks_of_node.begin(), ranks_of_node.size()));
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

    int size() const { return static_cast<int>(position_.size()); }
    int groups() const { return static_cast<int>(sizes_.size()); }
    int group_size(int group) const { return sizes_[static_cast<std::size_t>(group)]; }
    /// Number of ranks of the largest node.
    int largest_group_size() const { return static_cast<int>(ranks_.size() / sizes_.size()); }
    int group_of(int rank) const { return position_[static_cast<std::size_t>(rank)].group; }
    int index_of(int rank) const { return position_[static_cast<std::size_t>(rank)].index; }
    int rank_of(int group, int index) const { return ranks_[static_cast<std::size_t>(index * groups() + group)]; }
    /// Hash of this topology, see topology_digest.
    std::uint64_t digest() const { return digest_; }

    /// Topology of the ranks `survivors`, in this order, with new numbers from 0. Each rank stays on its node. Throws
    /// precondition_error if `survivors` is empty, or has a rank that this topology lacks.
    two_level shrink(std::span<const int> survivors) const {
        std::vector<int> node_of_rank;
        for (const int rank : survivors) {
            node_of_rank.push_back(group_of(detail::existing_rank("two_level", size(), rank)));
        }
        return two_level(std::span<const int>(node_of_rank));
    }

    slice_order order() const {
        slice_order order = strides();
        if (!regular_) order.table = ranks_.data();
        return order;
    }

    friend bool operator==(const two_level&, const two_level&) = default;

private:
    friend class shard_owners;

    /// Puts rank r in the group that `node_of_rank[r]` names. If `numbered`, these names are the numbers of groups,
    /// from 0 on. Otherwise, lowest ranks number the groups.
    [[gnu::noinline]] two_level(std::span<const int> node_of_rank, bool numbered) {
        if (node_of_rank.empty()) throw precondition_error("two_level", "at least 1 rank", "none");
        require_ranks(node_of_rank.size());
        // No std::sort: it takes longer to compile than the rest of this constructor.
        std::vector<int> names;  // [g]: number in `node_of_rank` that names group g
        int highest = 0;         // highest of `names`
        std::size_t group = 0;
        for (const int name : node_of_rank) {
            if (numbered) {
                group = static_cast<std::size_t>(name);
                if (group >= sizes_.size()) sizes_.resize(group + 1);
            } else {
                // Names mostly ascend or take turns: higher ones are new, and others are sought from the last group on.
                std::size_t others = names.empty() || name > highest ? names.size() : 0;
                for (; others != names.size() && names[group] != name; ++others) group = (group + 1) % names.size();
                if (others == names.size()) {
                    group = names.size();
                    highest = names.empty() ? name : std::max(highest, name);
                    names.push_back(name);
                    sizes_.push_back(0);
                }
            }
            position_.push_back({static_cast<int>(group), sizes_[group]++});
        }
        int largest = 0;
        for (const int ranks : sizes_) largest = std::max(largest, ranks);
        if (groups() > most / largest) {
            throw precondition_error(
                "two_level", "at most " + std::to_string(most) + " slots, the nodes times the ranks of the largest",
                std::to_string(groups()) + " x " + std::to_string(largest));
        }
        ranks_ = std::vector<int>(static_cast<std::size_t>(largest * groups()), size());
        for (std::size_t rank = 0; rank != position_.size(); ++rank) {
            ranks_[static_cast<std::size_t>(position_[rank].index * groups() + position_[rank].group)] =
                static_cast<int>(rank);
        }
        group_stride_ = groups() > 1 ? rank_of(1, 0) : size();
        index_stride_ = group_size(0) > 1 ? rank_of(0, 1) : 1;
        // Strides are usable only if all ranks that they give fit an int.
        regular_ = std::int64_t{groups() - 1} * group_stride_ + std::int64_t{largest - 1} * index_stride_ <= most;
        for (int slot = 0; regular_ && slot != largest * groups(); ++slot) {
            // Every number from size() on stands for no rank.
            regular_ = std::min(strides().rank(slot), size()) == ranks_[static_cast<std::size_t>(slot)];
        }
        digest_ = detail::digest_of_places(*this);
    }
    struct position {
        int group;
        int index;
        friend bool operator==(const position&, const position&) = default;
    };

    static constexpr int most = std::numeric_limits<int>::max();

    static void require_ranks(std::size_t ranks) {
        if (ranks <= static_cast<std::size_t>(most)) return;
        throw precondition_error("two_level", "at most " + std::to_string(most) + " ranks", "more");
    }
    static std::vector<int> consecutive(int nodes, int ranks_per_node) {
        if (nodes < 1 || ranks_per_node < 1) {
            throw precondition_error("two_level", "at least 1 node of at least 1 rank",
                                     std::to_string(nodes) + " nodes of " + std::to_string(ranks_per_node));
        }
        require_ranks(static_cast<std::size_t>(nodes) * static_cast<std::size_t>(ranks_per_node));
        return consecutive(std::vector<int>(static_cast<std::size_t>(nodes), ranks_per_node));
    }
    static std::vector<int> consecutive(std::span<const int> ranks_of_node) {
        std::vector<int> node_of_rank;
        for (std::size_t node = 0; node != ranks_of_node.size(); ++node) {
            if (ranks_of_node[node] < 1) {
                throw precondition_error("two_level", "at least 1 rank on every node",
                                         std::to_string(ranks_of_node[node]) + " on node " + std::to_string(node));
            }
            require_ranks(node_of_rank.size() + static_cast<std::size_t>(ranks_of_node[node]));
            for (int i = 0; i != ranks_of_node[node]; ++i) node_of_rank.push_back(static_cast<int>(node));
        }
        return node_of_rank;
    }

    slice_order strides() const {
        return {.groups = groups(), .group_stride = group_stride_, .index_stride = index_stride_};
    }

    int group_stride_ = 0;
    int index_stride_ = 0;
    std::uint64_t digest_ = 0;
    bool regular_ = false;            // true if the strides give the rank of every slot
    std::vector<int> sizes_;          // [g]: number of ranks of group g
    std::vector<position> position_;  // by rank
    std::vector<int> ranks_;          // by slot; size() where a group has no rank of this index
};

}  // namespace zeropp
