#pragma once
/// \file
/// Parameters that need the values of a block once more than `fit` does: by search, or by a second pass.

#include <zeropp/codec/cuda/granule_codec.cuh>
#include <zeropp/quantizer/quantizer.hpp>

#include <cstddef>
#include <cstdint>

namespace zeropp::detail {

template <class Q>
inline constexpr bool fits_twice = searching_quantizer<Q> || refitting_quantizer<Q>;

/// Sum of errors that merges as a block's stats do.
struct summed_error {
    std::uint32_t sum = 0;
    __device__ void merge(const summed_error& other) { sum += other.sum; }
};

/// params[r] <- better parameters of block r than the fitted ones, for teams of `Lanes` threads. for_each_value(r, use)
/// calls use(x) for this thread's values of the block. Above a warp, all threads of the thread block must call this.
template <int Lanes, quantizer Q, std::size_t Blocks, class ForEachValue>
requires fits_twice<Q> __device__ void refit_in_teams(const Q& q, typename Q::params (&params)[Blocks],
                                                      ForEachValue for_each_value) {
    if constexpr (refitting_quantizer<Q>) {
        typename Q::sums sums[Blocks];
#pragma unroll
        for (std::size_t r = 0; r != Blocks; ++r) {
            for_each_value(r, [&](float x) { sums[r].add(x, params[r]); });
        }
        merge_stats<Lanes>(sums);
#pragma unroll
        for (std::size_t r = 0; r != Blocks; ++r) params[r] = q.refit(params[r], sums[r]);
    } else {
        typename Q::params fitted[Blocks];
        std::uint32_t least[Blocks];
#pragma unroll
        for (std::size_t r = 0; r != Blocks; ++r) {
            fitted[r] = params[r];
            least[r] = ~0u;
        }
#pragma unroll 1
        for (int k = 0; k != Q::candidates; ++k) {
            summed_error error[Blocks];
#pragma unroll
            for (std::size_t r = 0; r != Blocks; ++r) {
                const auto candidate = q.candidate(fitted[r], k);
                for_each_value(r, [&](float x) { error[r].sum += q.error(x, candidate, fitted[r]); });
            }
            merge_stats<Lanes>(error);
#pragma unroll
            for (std::size_t r = 0; r != Blocks; ++r) {
                if (error[r].sum >= least[r]) continue;
                least[r] = error[r].sum;
                params[r] = q.candidate(fitted[r], k);
            }
        }
    }
}

}  // namespace zeropp::detail
