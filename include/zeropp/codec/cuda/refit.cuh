#pragma once
/// \file
/// Parameters that need the values of a block once more than `fit` does.

#include <zeropp/codec/cuda/granule_codec.cuh>
#include <zeropp/quantizer/quantizer.hpp>

#include <cstddef>

namespace zeropp::detail {

/// params[r] <- better parameters of block r than the fitted ones, for teams of `Lanes` threads. for_each_value(r, use)
/// calls use(x) for this thread's values of the block. Above a warp, all threads of the thread block must call this.
template <int Lanes, refitting_quantizer Q, std::size_t Blocks, class ForEachValue>
__device__ void refit_in_teams(const Q& q, typename Q::params (&params)[Blocks], ForEachValue for_each_value) {
    typename Q::sums sums[Blocks];
#pragma unroll
    for (std::size_t r = 0; r != Blocks; ++r) {
        for_each_value(r, [&](float x) { sums[r].add(x, params[r]); });
    }
    merge_stats<Lanes>(sums);
#pragma unroll
    for (std::size_t r = 0; r != Blocks; ++r) params[r] = q.refit(params[r], sums[r]);
}

}  // namespace zeropp::detail
