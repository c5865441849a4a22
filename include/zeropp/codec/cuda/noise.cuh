#pragma once
/// \file
/// Noise for eight elements that begin anywhere.

#include <zeropp/codec/cuda/granule.cuh>
#include <zeropp/quantizer/abilities.hpp>

#include <cstddef>
#include <cstdint>

namespace zeropp::detail {

/// Noise of elements [index, index + 8) of the tensor, of two granules if `index` is no multiple of 8. Shifted by 4, 2
/// and 1 elements, so that no register is chosen at run time.
template <dithering_quantizer Q>
__device__ rounding_noise noise_from(const Q& q, std::size_t index, bool sums) {
    rounding_noise noise = q.noise(index / granule_size, sums);
    const auto ahead = static_cast<unsigned>(index % granule_size);
    if (ahead == 0) return noise;
    const rounding_noise next = q.noise(index / granule_size + 1, sums);
    constexpr int words = granule_size / 2;
    std::uint32_t both[2 * words];
#pragma unroll
    for (int w = 0; w != words; ++w) {
        both[w] = noise.words.word[w];
        both[words + w] = next.words.word[w];
    }
#pragma unroll
    for (int w = 0; w != 2 * words - 2; ++w) both[w] = (ahead & 4u) != 0 ? both[w + 2] : both[w];
#pragma unroll
    for (int w = 0; w != words + 1; ++w) both[w] = (ahead & 2u) != 0 ? both[w + 1] : both[w];
#pragma unroll
    for (int w = 0; w != words; ++w) {
        noise.words.word[w] = (ahead & 1u) != 0 ? both[w] >> 16 | both[w + 1] << 16 : both[w];
    }
    return noise;
}

}  // namespace zeropp::detail
