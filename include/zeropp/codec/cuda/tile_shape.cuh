#pragma once
/// \file
/// How the threads of a thread block share the blocks of a quantizer.

#include <zeropp/codec/cuda/tuning.hpp>

namespace zeropp::detail {

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
