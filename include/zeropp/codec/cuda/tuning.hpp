#pragma once
/// \file
/// Tuning constants of the kernels for each GPU generation, and the division of blocks among threads.

#include <bit>

namespace zeropp::detail {

/// Threads of a thread block, in every kernel.
inline constexpr int kernel_threads = 256;

struct kernel_tuning {
    /// Bytes that each thread requests before it uses the first.
    int bytes_in_flight;
    /// 32-bit registers that a thread may use for fragments, loaded or made.
    int fragment_registers;
    /// Thread blocks for each multiprocessor, rounded down to a multiple of the number that it holds at a time.
    int blocks_per_multiprocessor;
};

/// Tuning for `compute_capability`, which is major * 10 + minor.
constexpr kernel_tuning tuning_for(int compute_capability) {
    return {.bytes_in_flight = 64,
            .fragment_registers = 32,
            .blocks_per_multiprocessor = compute_capability >= 90 ? 16 : 8};
}

/// Tuning of the device that is being compiled for.
#if defined(__CUDA_ARCH__)
inline constexpr kernel_tuning device_tuning = tuning_for(__CUDA_ARCH__ / 10);
#else
inline constexpr kernel_tuning device_tuning = tuning_for(0);
#endif

/// Number of granules that a thread has registers for, a power of two, if one takes `words` registers.
constexpr int granules_in_registers(const kernel_tuning& tuning, int words) {
    return words > tuning.fragment_registers
               ? 1
               : static_cast<int>(std::bit_floor(static_cast<unsigned>(tuning.fragment_registers / words)));
}

/// Number of granules that a thread loads at a time, a power of two, if one has `bytes` bytes and takes `words`
/// registers. At most four: more only make kernels longer.
constexpr int granules_in_flight(const kernel_tuning& tuning, int bytes, int words) {
    int n = 1;
    while (n < 4 && 2 * n * bytes <= tuning.bytes_in_flight && 2 * n <= granules_in_registers(tuning, words)) n *= 2;
    return n;
}

/// Thread blocks that a multiprocessor has registers for, if a thread's fragments take `words` registers. With three, a
/// thread has 80 registers, with two 128. About fifty hold no values.
constexpr int resident_blocks_for(int words) { return words < device_tuning.fragment_registers ? 3 : 2; }

/// Number of granules of a block for each lane of its team. Each lane repeats the work for a whole block, so lanes take
/// many. But eight lanes read whole cache lines of a 16-bit tensor and write whole sectors of 4-bit codes. A block that
/// fits a warp's registers stays in one warp, which needs no barrier. At least `run` granules, which lie in a row.
constexpr int lane_granules(int block_granules, int in_flight, int in_registers, int run) {
    int n = block_granules < 8 ? 1 : block_granules / 8;
    if (n > in_flight) n = in_flight;
    if (n < run) n = run;
    while (block_granules / n > 32 && block_granules / in_registers <= 32) n *= 2;
    return block_granules / n > kernel_threads ? block_granules / kernel_threads : n;
}

/// Division of a tile of `Values` (a `message_values`) among threads, for one GPU generation. A block has
/// `BlockGranules` granules; a thread best fetches `Together` in a row. Host and device compute the same shape.
template <class Values, int BlockGranules, int Together>
struct tile_shape {
    /// Number of granules that a thread has registers for.
    int most_granules;
    /// Number of granules that a thread takes in a row, so that their codes are one access.
    int run;
    /// Granules of a block for each thread of its team.
    int granules_per_lane;
    int lanes;
    int teams;
    /// Blocks of a tile for each team.
    int team_blocks;

    explicit constexpr tile_shape(const kernel_tuning& tuning)
        : most_granules(granules_in_registers(tuning, Values::fragment_words)), run(run_for(most_granules)),
          granules_per_lane(lane_granules(BlockGranules, Values::in_flight(tuning), most_granules, run)),
          lanes(BlockGranules / granules_per_lane), teams(kernel_threads / lanes),
          team_blocks(granules_per_lane < Values::in_flight(tuning) ? Values::in_flight(tuning) / granules_per_lane
                                                                    : 1) {}
    constexpr int blocks() const { return teams * team_blocks; }

private:
    /// 1 if a block does not stay in registers and is fetched granule by granule.
    static constexpr int run_for(int most) {
        if (BlockGranules / most > kernel_threads) return 1;
        const int run = Together < most ? Together : most;
        return run < BlockGranules ? run : BlockGranules;
    }
};

}  // namespace zeropp::detail
