#pragma once
/// \file
/// Chunks and workspaces of collectives of two hops, by the sizes of their messages alone: what collectives take, and
/// plans predict.

#include <zeropp/topology/chunking.hpp>
#include <zeropp/topology/topology.hpp>

#include <algorithm>
#include <cstddef>

namespace zeropp::detail {

/// The number of chunks, for messages across nodes of so many bytes, where hops overlap or do not.
template <topology Topology>
constexpr int chunks_for(int wanted, const Topology& ranks, std::size_t message_bytes, bool overlaps) {
    if (wanted != automatic) return wanted;
    return overlaps && has_hop_across(ranks) ? automatic_chunks(message_bytes) : 1;
}

/// Bytes of workspace of an all-gather: `messages` of each rank, those of all chunks.
template <topology Topology>
constexpr std::size_t gather_workspace(const Topology& ranks, std::size_t messages) {
    return static_cast<std::size_t>(ranks.size()) * messages;
}

/// The same of an update: `differences` of each group, and `gathered` of each rank, if whole tensors are made of it.
template <topology Topology>
constexpr std::size_t update_workspace(const Topology& ranks, std::size_t differences, std::size_t gathered) {
    return static_cast<std::size_t>(ranks.groups()) * differences + gather_workspace(ranks, gathered);
}

/// The buffers of a reduction for one chunk, to send and to receive on each hop; two chunks take turns.
struct reduce_buffers {
    /// Bytes of one rank's messages to all others.
    std::size_t inside;
    std::size_t across;

    /// For messages of so many bytes, of the largest chunk.
    template <topology Topology>
    constexpr reduce_buffers(const Topology& ranks, std::size_t inside_message, std::size_t across_message)
        : inside(has_hop_inside(ranks) ? static_cast<std::size_t>(ranks.size()) * inside_message : 0),
          across(has_hop_across(ranks) ? static_cast<std::size_t>(ranks.groups()) * across_message : 0) {}

    constexpr std::size_t bytes() const { return 2 * (inside + across); }

    /// Bytes of workspace for so many chunks.
    constexpr std::size_t workspace(std::size_t chunks) const { return std::min<std::size_t>(chunks, 2) * bytes(); }
};

}  // namespace zeropp::detail
