#pragma once
/// \file
/// How a slice is cut into chunks.

#include <zeropp/core/math.hpp>

#include <algorithm>
#include <cstddef>
#include <string>

namespace zeropp {

/// In place of a number of chunks: as many as `automatic_chunks` says.
inline constexpr int automatic = -1;

/// How many chunks pay where two hops overlap, each message across nodes having so many bytes. Every chunk costs the
/// start of its messages, and c of them leave 1 / c of what can overlap in the open: the best c grows as the root of
/// the bytes. The 32 KiB are measured (bench/all_reduce.sh).
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

/// Whether a tensor whose message has so many bytes is so small that an all-reduce does best to send it whole to
/// everybody: all that a rank receives then costs less than the start of more messages. Measured as above.
constexpr bool sums_everywhere(int ranks, std::size_t tensor_bytes) {
    return static_cast<std::size_t>(ranks) * tensor_bytes <= std::size_t{128} * 1024;
}

/// Cuts a slice of `size` elements into as many chunks as wanted, of whole blocks; fewer where it has fewer blocks, and
/// none where it is empty.
struct chunking {
    /// Elements of the slice.
    std::size_t size;
    /// Elements of a chunk, a whole number of blocks; the last may have fewer.
    std::size_t chunk = 0;
    std::size_t chunks = 0;

    /// In blocks of `block` elements. Requires block > 0; wanting fewer than 1 chunk is wanting 1.
    constexpr chunking(std::size_t elements, int wanted_chunks, std::size_t block) : size(elements) {
        if (size == 0) return;
        chunk = round_up(ceil_div(size, static_cast<std::size_t>(std::max(wanted_chunks, 1))), block);
        chunks = ceil_div(size, chunk);
    }

    /// Elements of chunk c.
    constexpr std::size_t count(std::size_t c) const { return std::min(chunk, size - c * chunk); }
};

/// Why a slice cannot be cut into so many chunks, as "expected ..., given ..."; empty when it can.
[[gnu::cold]] inline std::string chunks_problem(int wanted) {
    if (wanted == automatic || wanted > 0) return {};
    return "expected at least 1 chunk, given " + std::to_string(wanted);
}

}  // namespace zeropp
