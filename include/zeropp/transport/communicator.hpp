#pragma once
/// \file
/// A topology joined to a transport.

#include <zeropp/core/error.hpp>
#include <zeropp/core/math.hpp>
#include <zeropp/topology/columns.hpp>
#include <zeropp/topology/counterparts.hpp>
#include <zeropp/topology/topology.hpp>
#include <zeropp/transport/transport.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace zeropp {

/// Owns the transports that the collectives of one topology use: all ranks, this rank's group (its node), and its
/// counterparts, the ranks with the same index in the other groups. If groups differ in size, ranks of smaller groups
/// also serve the columns that only larger groups have (column_rounds).
///
/// Runs one collective at a time, in the same order on every rank. For collectives side by side (prefetching weights
/// while gradients are reduced), make one communicator for each, from its own split of the transport.
template <topology Topology, class Transport>
class communicator {
public:
    /// Collective over `world`. Throws precondition_error unless the topology has as many ranks as the transport, and
    /// if the program was compiled with flags of -ffast-math.
    ///
    /// `world` is a reference, so that `communicator(flat(world.size()), std::move(world))` does not depend on the
    /// order in which a compiler evaluates arguments. If a split throws, `world` keeps the transport.
    communicator(Topology topology, Transport&& world) : topology_(std::move(topology)), world_(std::move(world)) {
        if (topology_.size() != world_.size()) {
            throw precondition_error("communicator",
                                     "a topology of the transport's " + std::to_string(world_.size()) + " ranks",
                                     "one of " + std::to_string(topology_.size()));
        }
        if (!ieee_arithmetic()) {
            throw precondition_error("communicator", "IEEE arithmetic",
                                     "a program compiled with -fno-signed-zeros, -freciprocal-math, "
                                     "-funsafe-math-optimizations or -fno-honor-nans");
        }
        if (topology_.groups() == 1 || largest_group_size(topology_) == 1) return;
        try {
            intra_node_.emplace(world_.split(group_ranks(topology_, rank())));
            split_columns();
        } catch (...) {
            world = std::move(world_);
            throw;
        }
    }

    /// Collective. Uses a copy of `world`.
    communicator(Topology topology, const Transport& world)
        requires std::copy_constructible<Transport>
        : communicator(std::move(topology), Transport(world)) {}

    /// Communicator of the survivors of a failure, each on its node, and their ranks here, as in shrinkable_transport.
    /// `excluded` are ranks to leave out. If another rank dies while the survivors connect, they shrink again;
    /// where excluded ranks must be named (NCCL), it throws timeout_error: call again with all dead ranks.
    shrunk<communicator> shrink(std::span<const int> excluded = {})
        requires shrinkable_transport<Transport> && requires(const Topology& t, std::span<const int> survivors) {
            { t.shrink(survivors) } -> std::same_as<Topology>;
        }
    {
        return detail::connect<communicator>(world_.shrink(excluded), [&](shrunk<Transport>& left) {
            return communicator(topology_.shrink(left.survivors), std::move(left.next));
        });
    }

    const Topology& topology() const { return topology_; }
    int rank() const { return world_.rank(); }
    int size() const { return world_.size(); }

    /// This rank's group, its index in the group, and the number of ranks there.
    int group_id() const { return topology_.group_of(rank()); }
    int index() const { return topology_.index_of(rank()); }
    int group_size() const { return topology_.group_size(group_id()); }

    /// Transport of all ranks.
    Transport& world() { return world_; }
    /// Transport of this group's ranks, by index. Requires more than one rank in a group, or a single group.
    Transport& intra_node() { return intra_node_ ? *intra_node_ : world_; }
    /// Transport of the ranks that serve this rank's column of a round, by group: in round 0, the ranks with this
    /// index. Requires that this rank serves one, and more than one group or groups of one rank.
    Transport& inter_node(int round = 0) {
        return inter_node_.empty() ? world_ : inter_node_[static_cast<std::size_t>(round)];
    }

    /// Rounds in which this rank's group serves all columns.
    column_rounds rounds() const { return rounds_of(topology_, group_id()); }

private:
    /// Splits `world` into columns: all at once if groups are of equal size, otherwise as many at a time as have no
    /// rank in common. Ranks of none stay alone meanwhile.
    void split_columns() {
        const int columns = largest_group_size(topology_);
        std::vector<char> listed(static_cast<std::size_t>(size()));
        std::vector<int> own(1, rank());
        for (int c = 0; c <= columns; ++c) {
            std::vector<int> members;
            if (c != columns) members = column_ranks(topology_, c);
            bool complete = c == columns;
            for (const int r : members) complete = complete || listed[static_cast<std::size_t>(r)] != 0;
            if (complete) {
                Transport column = world_.split(own);
                if (own.size() != 1) inter_node_.push_back(std::move(column));
                listed = std::vector<char>(listed.size());
                own = std::vector<int>(1, rank());
            }
            for (const int r : members) {
                listed[static_cast<std::size_t>(r)] = 1;
                if (r == rank()) own = members;
            }
        }
    }

    Topology topology_;
    Transport world_;
    // Absent with a single group, or with groups of one rank.
    std::optional<Transport> intra_node_;
    std::vector<Transport> inter_node_;  // by round
};

}  // namespace zeropp
