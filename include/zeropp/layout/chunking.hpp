#pragma once
/// \file
/// Division of a shard into chunks.

#include <zeropp/core/math.hpp>
#include <zeropp/topology/topology.hpp>

#include <algorithm>
#include <cstddef>
#include <string>

namespace zeropp {

/// A value for a number of chunks: lets the library choose the number by `automatic_chunks`.
inline constexpr int auto_chunks = -1;

/// Best number of chunks if two hops overlap: sqrt(`message_bytes` / 32 KiB), rounded down, from 1 to 16.
/// `message_bytes` is the size of a whole shard's message on the last level. Each chunk costs the start of its
/// messages; c chunks leave 1 / c of the shorter hop without overlap. The 32 KiB are measured (bench/all_reduce.sh).
constexpr int automatic_chunks(std::size_t message_bytes) {
    constexpr std::size_t of_one = std::size_t{32} * 1024;
    int chunks = 1;
    std::size_t squared = 4;
    while (chunks != 16 && squared * of_one <= message_bytes) {
        ++chunks;
        squared = static_cast<std::size_t>(chunks + 1) * static_cast<std::size_t>(chunks + 1);
    }
    return chunks;
}

/// True if an all-reduce of `ranks` ranks should be one-shot: gather all tensors and sum them. Two-shot is a
/// reduce-scatter and an all-gather. A shard's message has `first_hop_bytes` bytes on the first hop, and
/// `all_gather_bytes` in the all-gather phase of two-shot. Two ranks prefer one-shot if it sends no more bytes, because
/// one-shot has one phase less. Any number of ranks prefers one-shot if all their messages together have at most 128
/// KiB. Receiving the messages then costs less than starting a second phase. Measured (bench/all_reduce.sh).
constexpr bool prefers_one_shot(int ranks, std::size_t first_hop_bytes, std::size_t all_gather_bytes) {
    const auto n = static_cast<std::size_t>(ranks);
    return (ranks == 2 && first_hop_bytes <= all_gather_bytes) || first_hop_bytes <= std::size_t{128} * 1024 / (n * n);
}

/// Division of a shard into chunks of whole blocks: perhaps fewer chunks than wanted. An empty shard has no chunks.
struct chunking {
    /// Number of elements of the shard.
    std::size_t size;
    /// Number of elements of each chunk, in whole blocks; the last chunk may have fewer.
    std::size_t chunk = 0;
    /// Number of chunks.
    std::size_t chunks = 0;

    /// Cuts a shard of `elements` elements into at most `wanted_chunks` chunks, between blocks of `block` > 0 elements.
    /// `wanted_chunks` below 1 counts as 1.
    constexpr chunking(std::size_t elements, int wanted_chunks, std::size_t block) : size(elements) {
        if (size == 0) return;
        chunk = round_up(ceil_div(size, static_cast<std::size_t>(std::max(wanted_chunks, 1))), block);
        chunks = ceil_div(size, chunk);
    }

    /// Number of elements of chunk `c`.
    constexpr std::size_t count(std::size_t c) const { return std::min(chunk, size - c * chunk); }
};

/// Reason why `wanted` cannot be a number of chunks, as "expected ..., given ..."; empty if it can.
[[gnu::cold]] inline std::string chunks_problem(int wanted) {
    if (wanted == auto_chunks || wanted > 0) return {};
    return "expected at least 1 chunk, given " + std::to_string(wanted);
}

namespace detail {

/// Number of chunks of a call: `wanted`, unless this is `auto_chunks`. Then automatic_chunks(`message_bytes`) if the
/// call overlaps hops (`overlaps`) and the last of several levels has a hop. Otherwise 1.
template <topology Topology>
constexpr int chunks_for(int wanted, const Topology& ranks, std::size_t message_bytes, bool overlaps) {
    if (wanted != auto_chunks) return wanted;
    constexpr int last = Topology::levels - 1;
    return overlaps && last > 0 && has_hop(ranks, last) ? automatic_chunks(message_bytes) : 1;
}

}  // namespace detail

}  // namespace zeropp
