#pragma once
/// \file
/// Chunks and workspaces of collectives of two hops, from sizes of messages alone. Plans use them, too.

#include <zeropp/layout/chunking.hpp>
#include <zeropp/topology/topology.hpp>

#include <algorithm>
#include <cstddef>

namespace zeropp::detail {

/// Number of chunks: `wanted` or, if `auto_chunks`, by the size of inter-node messages; 1 if no hops overlap.
template <topology Topology>
constexpr int chunks_for(int wanted, const Topology& ranks, std::size_t message_bytes, bool overlaps) {
    if (wanted != auto_chunks) return wanted;
    return overlaps && has_hop_across(ranks) ? automatic_chunks(message_bytes) : 1;
}

/// Workspace bytes of an all-gather: `messages` bytes from each rank.
template <topology Topology>
constexpr std::size_t gather_workspace(const Topology& ranks, std::size_t messages) {
    return static_cast<std::size_t>(ranks.size()) * messages;
}

/// Workspace bytes of an update: `differences` from each node and, if it gathers whole tensors, `gathered` from each
/// rank.
template <topology Topology>
constexpr std::size_t update_workspace(const Topology& ranks, std::size_t differences, std::size_t gathered) {
    return static_cast<std::size_t>(ranks.groups()) * differences + gather_workspace(ranks, gathered);
}

/// Sizes of a reduction's buffers for one chunk, to send and to receive on each hop. Two chunks take turns.
struct reduce_buffers {
    /// Bytes of one rank's messages to all others, on the intra-node and on the inter-node hop.
    std::size_t inside;
    std::size_t across;

    /// For messages of the largest chunk, of `inside_message` and `across_message` bytes.
    template <topology Topology>
    constexpr reduce_buffers(const Topology& ranks, std::size_t inside_message, std::size_t across_message)
        : inside(has_hop_inside(ranks) ? static_cast<std::size_t>(ranks.size()) * inside_message : 0),
          across(has_hop_across(ranks) ? static_cast<std::size_t>(ranks.groups()) * across_message : 0) {}

    constexpr std::size_t bytes() const { return 2 * (inside + across); }

    /// Workspace bytes for `chunks` chunks.
    constexpr std::size_t workspace(std::size_t chunks) const { return std::min<std::size_t>(chunks, 2) * bytes(); }
};

}  // namespace zeropp::detail
