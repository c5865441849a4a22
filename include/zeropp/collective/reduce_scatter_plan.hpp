#pragma once
/// \file
/// How a hierarchical reduce-scatter is cut into chunks, and where they lie in the workspace.

#include <zeropp/core/math.hpp>
#include <zeropp/core/text.hpp>
#include <zeropp/core/view.hpp>
#include <zeropp/quantizer/wire_layout.hpp>
#include <zeropp/topology/partition.hpp>
#include <zeropp/topology/topology.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace zeropp {

/// What a reduce-scatter computes of the ranks' values: their sum, or sum / ranks.
enum class reduction { sum, mean };

/// The options of a reduce-scatter; the same on every rank.
struct reduce_options {
    reduction operation = reduction::sum;
    /// Into how many chunks each slice is cut, so that the hops of successive chunks overlap. Fewer are used where the
    /// slice has fewer blocks. Requires chunks > 0.
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

/// The chunks and buffers of one reduce-scatter.
struct reduce_scatter_plan {
    partition part;
    bool hop_inside;
    bool hop_across;
    /// Elements of every slice in one chunk, a whole number of blocks of either quantizer; the last may have fewer.
    std::size_t chunk = 0;
    std::size_t chunks = 0;
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
        : part(elements, ranks.size()), hop_inside(ranks.group_size() > 1 || ranks.groups() == 1),
          hop_across(ranks.groups() > 1) {
        if (elements == 0) return;
        // Powers of two, so the larger is a multiple of the other.
        const auto block = static_cast<std::size_t>(std::max(Inside::block_size, Across::block_size));
        chunk = round_up(ceil_div(part.slice_size(), static_cast<std::size_t>(std::max(wanted_chunks, 1))), block);
        chunks = ceil_div(part.slice_size(), chunk);
        if (hop_inside) inside_bytes = static_cast<std::size_t>(ranks.size()) * wire_bytes(inside, count(0));
        if (hop_across) across_bytes = static_cast<std::size_t>(ranks.groups()) * wire_bytes(across, count(0));
    }

    /// Elements of every slice in chunk c.
    std::size_t count(std::size_t c) const { return std::min(chunk, part.slice_size() - c * chunk); }

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
    const auto address = [](const void* p) { return reinterpret_cast<std::uintptr_t>(p); };
    const bool apart = address(shard.data() + shard.size()) <= address(full.data()) ||
                       address(full.data() + full.size()) <= address(shard.data());
    return shard.size() != 0 && !apart && address(shard.data()) != address(full.data() + offset);
}

}  // namespace detail

}  // namespace zeropp
