#pragma once
/// \file
/// Merges the stats of a block over the threads that share it.

#include <zeropp/codec/cuda/tuning.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace zeropp::detail {

/// Merges each of N stats over groups of `Lanes` neighbouring threads of a warp; all of a group get the result.
template <int Lanes, std::size_t N, class Stats>
__device__ void merge_in_warp(Stats (&stats)[N]) {
    constexpr std::size_t words = sizeof(Stats) / 4;
#pragma unroll
    for (int distance = 1; distance < Lanes; distance *= 2) {
#pragma unroll
        for (std::size_t n = 0; n != N; ++n) {
            std::uint32_t sent[words];
            memcpy(sent, &stats[n], sizeof(Stats));
#pragma unroll
            for (std::size_t w = 0; w != words; ++w) sent[w] = __shfl_xor_sync(0xffffffffu, sent[w], distance);
            Stats other;
            memcpy(&other, sent, sizeof(Stats));
            stats[n].merge(other);
        }
    }
}

/// Merges each of N stats over teams of `Lanes` threads. Above a warp, all threads of the thread block must call it.
template <int Lanes, std::size_t N, class Stats>
__device__ void merge_stats(Stats (&stats)[N]) {
    static_assert(sizeof(Stats) % 4 == 0 || std::is_empty_v<Stats>, "stats travel between threads as 32-bit words");
    if constexpr (!std::is_empty_v<Stats>) {
        merge_in_warp<(Lanes < 32 ? Lanes : 32)>(stats);
        if constexpr (Lanes > 32) {
            constexpr int team_warps = Lanes / 32;
            __shared__ std::uint32_t of_warp[N][kernel_threads / 32][sizeof(Stats) / 4];
            const int lane = static_cast<int>(threadIdx.x) % 32;
            const int warp = static_cast<int>(threadIdx.x) / 32;
            __syncthreads();  // earlier stats have been read
            if (lane == 0) {
#pragma unroll
                for (std::size_t n = 0; n != N; ++n) memcpy(of_warp[n][warp], &stats[n], sizeof(Stats));
            }
            __syncthreads();
            const int from = warp / team_warps * team_warps + lane % team_warps;
#pragma unroll
            for (std::size_t n = 0; n != N; ++n) memcpy(&stats[n], of_warp[n][from], sizeof(Stats));
            merge_in_warp<team_warps>(stats);
        }
    }
}

}  // namespace zeropp::detail
