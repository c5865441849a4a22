#pragma once
/// \file
/// Tuning constants of the kernels, for each GPU generation.

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

}  // namespace zeropp::detail
