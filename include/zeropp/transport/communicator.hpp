#pragma once
/// \file
/// A topology joined to a transport.

#include <zeropp/core/error.hpp>
#include <zeropp/core/math.hpp>
#include <zeropp/topology/topology.hpp>
#include <zeropp/transport/transport.hpp>

#include <concepts>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace zeropp {

/// The transports that the collectives of one topology use: all ranks, this rank's group (its node), and its
/// counterparts, the ranks of the same index on the other nodes. Owns them.
///
/// Not for concurrent use: one collective at a time, in the same order on every rank. For collectives that run side by
/// side (prefetching weights while gradients are reduced), make a communicator for each from its own split of the
/// transport.
template <topology Topology, class Transport>
class communicator {
public:
    using topology_type = Topology;
    using transport_type = Transport;

    /// Collective over `world`. Throws precondition_error unless the topology has as many ranks as the transport, and
    /// the program was compiled without flags of -ffast-math.
    ///
    /// By reference, so that `communicator(flat(world.size()), std::move(world))` does not depend on which argument a
    /// compiler evaluates first.
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
        std::vector<int> members;
        for (int i = 0; i != topology_.group_size(); ++i) members.push_back(topology_.rank_of(group_id(), i));
        group_.emplace(world_.split(members));
        members.clear();
        for (int g = 0; g != topology_.groups(); ++g) members.push_back(topology_.rank_of(g, index()));
        across_.emplace(world_.split(members));
    }

    /// The same over a copy of `world`, which is the same rank of the same group.
    communicator(Topology topology, const Transport& world) requires std::copy_constructible<Transport>
        : communicator(std::move(topology), Transport(world)) {}

    const Topology& topology() const { return topology_; }
    int rank() const { return world_.rank(); }
    int size() const { return world_.size(); }

    /// This rank's group and its place in it.
    int group_id() const { return topology_.group_of(rank()); }
    int index() const { return topology_.index_of(rank()); }

    /// All ranks.
    Transport& world() { return world_; }
    /// The ranks of this group, by index. Requires more than one rank in a group, or a single group.
    Transport& group() { return group_ ? *group_ : world_; }
    /// The ranks of this index, by group. Requires more than one group, or groups of one.
    Transport& across() { return across_ ? *across_ : world_; }

private:
    Topology topology_;
    Transport world_;
    std::optional<Transport> group_;   // absent where the world is the only group, or groups have one rank
    std::optional<Transport> across_;  // likewise
};

}  // namespace zeropp
