#pragma once
/// \file
/// The collectives of a training step, one after another, each by itself.

#include <zeropp/plan/volume.hpp>
#include <zeropp/topology/two_level.hpp>

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace zeropp_scale {

/// A collective with its arrays, ready to be called on this rank.
struct work {
    /// Collective over all ranks.
    std::function<void()> call;
    /// Throws zeropp::error where what has arrived is wrong.
    std::function<void()> check;
};

/// One collective, of one tensor.
struct phase {
    std::string name;
    std::string formats;
    /// Whether it is MPI's own, a ring through all ranks, and not the library's.
    bool native;
    /// What every rank sends; of a ring, the last rank of each node, which is the only one whose messages leave it.
    zeropp::volume planned;
    std::function<work()> prepare;
    /// Takes what this rank has sent since the last time, all calls together, by `counting`; a ring is not counted.
    std::function<zeropp::volume()> take_counted;
    /// Prepares the same without communication, which leaves the codec.
    std::function<work()> prepare_silent;
};

/// Of a tensor of `elements` in bfloat16, on MPI's ranks, so many to a node. Requires `elements` to be divisible by
/// twice the ranks. Collective. MPI must stay initialised as long as the result lives.
std::vector<phase> phases_of_step(const zeropp::two_level& ranks, std::size_t elements);

}  // namespace zeropp_scale
