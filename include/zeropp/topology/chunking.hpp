#pragma once
/// \file
/// How a slice is cut into chunks.

#include <zeropp/core/math.hpp>

#include <algorithm>
#include <cstddef>
#include <string>

namespace zeropp {

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

/// Why a slice cannot be cut into fewer chunks than one, as "expected ..., given ...".
[[gnu::cold]] inline std::string chunks_problem(int wanted) {
    return "expected at least 1 chunk, given " + std::to_string(wanted);
}

}  // namespace zeropp
