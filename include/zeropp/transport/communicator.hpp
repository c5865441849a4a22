#pragma once
/// \file
/// A topology joined to a transport.

#include <zeropp/core/error.hpp>
#include <zeropp/core/math.hpp>
#include <zeropp/topology/counterparts.hpp>
#include <zeropp/topology/topology.hpp>
#include <zeropp/transport/transport.hpp>

#include <concepts>
#include <optional>
#include <string>
#include <utility>

namespace zeropp {

/// Owns the transports that the collectives of one topology use: all ranks, this rank's group (its node), and its
/// counterparts, the ranks with the same index in the other groups.
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
    /// order in which a compiler evaluates arguments.
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
        if (topology_.groups() == 1 || topology_.group_size() == 1) return;
        intra_node_.emplace(world_.split(group_ranks(topology_, rank())));
        inter_node_.emplace(world_.split(counterpart_ranks(topology_, rank())));
    }

    /// Collective. Uses a copy of `world`.
    communicator(Topology topology, const Transport& world) requires std::copy_constructible<Transport>
        : communicator(std::move(topology), Transport(world)) {}

    const Topology& topology() const { return topology_; }
    int rank() const { return world_.rank(); }
    int size() const { return world_.size(); }

    /// This rank's group, and its index in the group.
    int group_id() const { return topology_.group_of(rank()); }
    int index() const { return topology_.index_of(rank()); }

    /// Transport of all ranks.
    Transport& world() { return world_; }
    /// Transport of this group's ranks, by index. Requires more than one rank in a group, or a single group.
    Transport& intra_node() { return intra_node_ ? *intra_node_ : world_; }
    /// Transport of the ranks with this index, by group. Requires more than one group, or groups of one rank.
    Transport& inter_node() { return inter_node_ ? *inter_node_ : world_; }

private:
    Topology topology_;
    Transport world_;
    // Absent with a single group, or with groups of one rank.
    std::optional<Transport> intra_node_;
    std::optional<Transport> inter_node_;
};

}  // namespace zeropp
