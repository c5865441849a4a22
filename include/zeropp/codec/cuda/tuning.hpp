#pragma once
/// \file
/// Tuning constants of the kernels, and the division of blocks among threads.

#include <zeropp/core/config.hpp>

#include <bit>
#include <cstddef>

namespace zeropp::detail {

/// Number of threads of a thread block, in every kernel.
inline constexpr int kernel_threads = 256;

/// Number of warps of a thread block.
inline constexpr int kernel_warps = kernel_threads / 32;

/// Number of bytes that a thread may request before it uses the first of them.
inline constexpr int bytes_in_flight = 64;

/// Number of 32-bit registers that a thread may use for granules, loaded or converted.
inline constexpr int fragment_registers = 32;

/// Number of granules that a thread has registers for, a power of two, if each granule takes `words` registers.
constexpr int granules_in_registers(int words) {
    return words > fragment_registers
               ? 1
               : static_cast<int>(std::bit_floor(static_cast<unsigned>(fragment_registers / words)));
}

/// Number of granules that a thread loads at a time, a power of two, if each has `bytes` bytes and takes `words`
/// registers. At most four: more only make kernels longer.
constexpr int granules_in_flight(int bytes, int words) {
    int n = 1;
    while (n < 4 && 2 * n * bytes <= bytes_in_flight && 2 * n <= granules_in_registers(words)) n *= 2;
    return n;
}

/// Number of thread blocks that a multiprocessor has registers for, if a thread's granules take `words` registers. With
/// three thread blocks, a thread has 80 registers; with two, 128. About fifty registers hold no granules.
constexpr int resident_blocks_for(int words) { return words < fragment_registers ? 3 : 2; }

/// Number of granules that each lane of a team takes of the team's block. Each lane repeats the work for a whole block,
/// so lanes take many granules, up to the `in_flight` granules of one load. But eight lanes read whole cache lines of a
/// 16-bit tensor and write whole sectors of 4-bit codes. A block that fits a warp's registers, `in_registers` granules
/// for each thread, stays in one warp, which needs no barrier. At least `run` granules, which lie in a row. At least
/// `fewest` lanes, if the block has as many granules.
constexpr int lane_granules(int block_granules, int in_flight, int in_registers, int run, int fewest) {
    int n = block_granules < fewest ? 1 : block_granules / fewest;
    if (n > in_flight) n = in_flight;
    if (n < run) n = run;
    while (block_granules / n > 32 && block_granules / in_registers <= 32) n *= 2;
    return block_granules / n > kernel_threads ? block_granules / kernel_threads : n;
}

/// Number of granules in a row that a thread takes, so that their codes are one access. The source is best fetched
/// `together` in a row. 1 if a block does not fit into a thread block's registers, `most` granules for each thread.
constexpr int granules_in_a_row(int block_granules, int most, int together) {
    if (block_granules / most > kernel_threads) return 1;
    const int run = together < most ? together : most;
    return run < block_granules ? run : block_granules;
}

/// Division of an encoder's tile among threads. `Values` is a `message_values`. A block has `BlockGranules` granules. A
/// thread best fetches `Together` in a row. A team has `Fewest` lanes or more, if its block has as many granules.
template <class Values, int BlockGranules, int Together, int Fewest = 8>
struct tile_shape {
    /// Number of granules that a thread has registers for.
    static constexpr int most_granules = granules_in_registers(Values::fragment_words);
    static constexpr int run = granules_in_a_row(BlockGranules, most_granules, Together);
    /// Number of granules of a block that each thread of a team takes.
    static constexpr int granules_per_lane =
        lane_granules(BlockGranules, Values::in_flight, most_granules, run, Fewest);
    static constexpr int lanes = BlockGranules / granules_per_lane;
    static constexpr int teams = kernel_threads / lanes;
    /// Number of blocks of a tile that each team takes.
    static constexpr int team_blocks =
        granules_per_lane < Values::in_flight ? Values::in_flight / granules_per_lane : 1;
    static constexpr int blocks = teams * team_blocks;
    /// Number of granules of a tile that each thread takes.
    static constexpr int thread_granules = team_blocks * granules_per_lane;

    /// Number of granules from a thread's first one in a tile to its n-th. They belong to one block, then to every
    /// `teams`-th block after it.
    ZEROPP_HOST_DEVICE static constexpr std::size_t granules_to(std::size_t n) {
        const std::size_t in_block = n % granules_per_lane;
        return n / granules_per_lane * teams * BlockGranules + in_block / run * (lanes * run) + in_block % run;
    }
};

}  // namespace zeropp::detail
