#pragma once
/// \file
/// What the kernels are tuned by. Constants only.

#include <bit>

namespace zeropp::detail {

/// Threads of a block of every kernel.
inline constexpr int kernel_threads = 256;

/// Bytes that each thread asks for before it uses the first.
inline constexpr int bytes_in_flight = 64;

/// Most 32-bit registers of a thread for fragments, loaded or made.
inline constexpr int fragment_registers = 32;

/// Thread blocks for each multiprocessor; `launch` takes fewer if a multiprocessor does not hold a divisor of them.
/// `compute_capability` is major * 10 + minor.
constexpr int blocks_per_multiprocessor(int compute_capability) { return compute_capability >= 90 ? 16 : 8; }

/// Number of granules that a thread has registers for, a power of two, if one takes `words`.
constexpr int granules_in_registers(int words) {
    return words > fragment_registers
               ? 1
               : static_cast<int>(std::bit_floor(static_cast<unsigned>(fragment_registers / words)));
}

/// Number of granules that a thread loads at a time, a power of two up to four, if one is `bytes` and takes `words`.
/// Beyond four, more of them only make kernels longer.
constexpr int granules_in_flight(int bytes, int words) {
    int n = 1;
    while (n < 4 && 2 * n * bytes <= bytes_in_flight && 2 * n <= granules_in_registers(words)) n *= 2;
    return n;
}

/// Thread blocks that a multiprocessor has registers for, if the fragments of a thread are so many words: 80 registers
/// each for three blocks, 128 for two. What is not values takes about fifty.
constexpr int resident_blocks_for(int words) { return words < fragment_registers ? 3 : 2; }

/// How many granules of a block each lane of its team takes. Many, since what is done once for a block is done by each
/// lane; but eight lanes side by side read whole cache lines of a 16-bit tensor and write whole sectors of 4-bit codes.
/// As many as a thread has registers for where the block then fits a warp, which needs no barrier; no fewer than `run`,
/// which lie in a row.
constexpr int lane_granules(int block_granules, int in_flight, int in_registers, int run) {
    int n = block_granules < 8 ? 1 : block_granules / 8;
    if (n > in_flight) n = in_flight;
    if (n < run) n = run;
    while (block_granules / n > 32 && block_granules / in_registers <= 32) n *= 2;
    return block_granules / n > kernel_threads ? block_granules / kernel_threads : n;
}

}  // namespace zeropp::detail
