#pragma once
/// \file
/// How a hierarchical reduce-scatter is cut into chunks, and where they lie in the workspace.

#include <zeropp/core/text.hpp>
#include <zeropp/core/view.hpp>
#include <zeropp/quantizer/wire_layout.hpp>
#include <zeropp/topology/chunking.hpp>
#include <zeropp/topology/partition.hpp>
#include <zeropp/topology/topology.hpp>

#include <algorithm>
#include <cstddef>

namespace zeropp {

/// What a reduce-scatter computes of the ranks' values: their sum, or sum / ranks.
enum class reduction { sum, mean };

/// The options of a reduce-scatter; the same on every rank.
struct reduce_options {
    reduction operation = reduction::sum;
    /// Into how many chunks each slice is cut, so that the hops of successive chunks overlap. Fewer are used where the
    /// slice has fewer blocks. Requires chunks > 0. On two executions and over slow links, 8 pay where a chunk's message
    /// to one rank across nodes still has some 32 KiB; below that, starting messages costs more than overlap saves.
    int chunks = 1;
    /// Add to what the shard holds instead of replacing it.
    bool accumulate = false;

    /// The options in words.
    constexpr short_text text() const {
        short_text t(operation == reduction::mean ? "mean" : "sum");
        t.append(" in ").append(std::max(chunks, 0)).append(chunks == 1 ? " chunk" : " chunks");
        if (accumulate) t.append(", accumulated");
        return t;
    }
};

namespace detail {

/// The chunks of every slice, in blocks of either quantizer, and the buffers of one reduce-scatter.
struct reduce_scatter_plan : chunking {
    partition part;
    bool hop_inside;
    bool hop_across;
    std::size_t inside_bytes = 0;  // one rank's messages for all others, of a whole chunk
    std::size_t across_bytes = 0;

    /// The send and receive buffers of one chunk.
    struct chunk_buffers {
        std::byte* inside_send;
        std::byte* inside_receive;
        std::byte* across_send;
        std::byte* across_receive;
    };

    template <topology Topology, class Inside, class Across>
    reduce_scatter_plan(const Topology& ranks, const Inside& inside, const Across& across, std::size_t elements,
                        int wanted_chunks)
        // Block sizes are powers of two, so the larger is a multiple of the other.
        : chunking(partition(elements, ranks.size()).slice_size(), wanted_chunks,
                   static_cast<std::size_t>(std::max(Inside::block_size, Across::block_size))),
          part(elements, ranks.size()), hop_inside(has_hop_inside(ranks)), hop_across(has_hop_across(ranks)) {
        if (elements == 0) return;
        if (hop_inside) inside_bytes = static_cast<std::size_t>(ranks.size()) * wire_bytes(inside, count(0));
        if (hop_across) across_bytes = static_cast<std::size_t>(ranks.groups()) * wire_bytes(across, count(0));
    }

    std::size_t bytes_of_one_chunk() const { return 2 * inside_bytes + 2 * across_bytes; }
    std::size_t workspace_bytes() const { return std::min<std::size_t>(chunks, 2) * bytes_of_one_chunk(); }

    chunk_buffers buffers(std::byte* workspace, std::size_t c) const {
        std::byte* const first = workspace + c % 2 * bytes_of_one_chunk();
        return {first, first + inside_bytes, first + 2 * inside_bytes, first + 2 * inside_bytes + across_bytes};
    }
};

/// Whether `shard` overlaps `full` anywhere but exactly at element `offset`.
template <class Full, class Shard>
bool overlaps_elsewhere(const Full& full, const Shard& shard, std::size_t offset) {
    return overlap(full, shard) && static_cast<const void*>(shard.data()) != full.data() + offset;
}

}  // namespace detail

}  // namespace zeropp
