#pragma once
/// \file
/// Walsh-Hadamard transforms on the host.

#include <zeropp/core/math.hpp>
#include <zeropp/quantizer/abilities.hpp>

#include <cstddef>

namespace zeropp::detail {

/// One stage over N values. A loop over all windows turns into vector code even where the stride is small.
template <std::size_t Stride, std::size_t N>
void butterflies(const float* __restrict from, float* __restrict to) {
    for (std::size_t pairs = 0; pairs != N; pairs += 2 * Stride) {
        for (std::size_t i = pairs; i != pairs + Stride; ++i) {
            to[i] = from[i] + from[i + Stride];
            to[i + Stride] = from[i] - from[i + Stride];
        }
    }
}

/// The stages from `Stride` on for N / Size windows, from `values` to `other` and back in turns; then all times `scale`
/// into `result`, which is one of the two.
template <std::size_t Size, std::size_t N, std::size_t Stride = 1>
void rotate_windows(float* values, float* other, float scale, float* result) {
    if constexpr (Stride == Size) {
        for (std::size_t i = 0; i != N; ++i) result[i] = product(values[i], scale);
    } else {
        butterflies<Stride, N>(values, other);
        rotate_windows<Size, N, 2 * Stride>(other, values, scale, result);
    }
}

/// Rotates the whole windows of n values for Q, or back; does nothing if Q has no rotation. What is left over stays.
template <quantizer Q, class Count>
void rotate(float* values, Count n, bool back) {
    constexpr auto size = static_cast<std::size_t>(rotation_size<Q>());
    if constexpr (size > 1) {
        constexpr std::size_t many = 256;
        const float scale = rotation_scale<rotation_size<Q>()>(back);
        float other[many];
        const std::size_t in_lots = n / many * many;
        for (std::size_t begin = 0; begin != in_lots; begin += many) {
            rotate_windows<size, many>(values + begin, other, scale, values + begin);
        }
        for (std::size_t begin = in_lots; begin + size <= n; begin += size) {
            rotate_windows<size, size>(values + begin, other, scale, values + begin);
        }
    }
}

}  // namespace zeropp::detail
