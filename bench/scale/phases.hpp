#pragma once
/// \file
/// The collectives of a training step, each called separately.

#include <zeropp/plan.hpp>
#include <zeropp/topology/three_level.hpp>

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace zeropp_scale {

/// A collective with its arrays, ready to be called on this rank.
struct work {
    /// Collective over all ranks.
    std::function<void()> call;
    /// Throws zeropp::error if the result of the last call is wrong.
    std::function<void()> check;
};

/// One collective on one tensor.
struct phase {
    std::string name;
    std::string formats;
    /// True for MPI's own collective, a ring through all ranks.
    bool native;
    /// Bytes that this rank sends; in a ring, the last rank of each node, the only one that sends to another node.
    zeropp::volume planned;
    /// Bytes that each node sends to other nodes, and each site to other sites.
    std::uint64_t by_node;
    std::uint64_t by_site;
    std::function<work()> prepare;
    /// Returns the bytes that this rank has sent since the last take_counted(), by `counting`; 0 for a ring.
    std::function<zeropp::volume()> take_counted;
    /// Prepares the collective without communication, for the codec alone; empty for a ring.
    std::function<work()> prepare_silent;
};

/// Phases of a step on a tensor of `elements` bfloat16 elements, over MPI's ranks. Requires `elements` to be divisible
/// by twice the number of ranks. Collective. MPI must stay initialised while the result lives.
std::vector<phase> phases_of_step(const zeropp::three_level& ranks, std::size_t elements);

}  // namespace zeropp_scale
