#pragma once
/// \file
/// How the threads of a thread block share the blocks of a quantizer.

#include <zeropp/codec/cuda/tuning.hpp>

namespace zeropp::detail {

/// Number of granules in a row that a thread takes, so that their codes are one access. One if a block of
/// `block_granules` does not stay in registers for `most` granules and is fetched granule by granule; `together` is what
/// the source is best fetched by.
constexpr int granules_in_a_row(int block_granules, int most, int together) {
    if (block_granules / most > kernel_threads) return 1;
    const int run = together < most ? together : most;
    return run < block_granules ? run : block_granules;
}

/// How they share those of a tile of `message_values`, where a block has so many granules and a source is best fetched
/// Together in a row.
template <class Values, int BlockGranules, int Together>
struct tile_shape {
    /// How many granules a thread has registers for.
    static constexpr int most_granules = granules_in_registers(Values::fragment_words);
    static constexpr int run = granules_in_a_row(BlockGranules, most_granules, Together);
    /// Granules of a block for each thread of its team.
    static constexpr int granules_per_lane = lane_granules(BlockGranules, Values::in_flight, most_granules, run);
    static constexpr int lanes = BlockGranules / granules_per_lane;
    static constexpr int teams = kernel_threads / lanes;
    /// Blocks of a tile for each team.
    static constexpr int team_blocks =
        granules_per_lane < Values::in_flight ? Values::in_flight / granules_per_lane : 1;
    static constexpr int blocks = teams * team_blocks;
};

}  // namespace zeropp::detail
