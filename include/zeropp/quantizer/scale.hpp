#pragma once
/// \file
/// Block scales: kept in a narrow type, rounded so that no element of the block is clipped.

#include <zeropp/core/element.hpp>
#include <zeropp/core/math.hpp>

#include <concepts>
#include <cstdint>

namespace zeropp {

/// A type of stored block scales: float, half or bfloat16.
template <class S>
concept scale_type = std::same_as<S, float> || std::same_as<S, half> || std::same_as<S, bfloat16>;

/// The S of least magnitude not below |x|, with the sign of x; NaN if S cannot hold it. Without a branch, since the
/// signs of blocks' extremes are random.
template <scale_type S>
constexpr ZEROPP_HOST_DEVICE S round_away_from_zero(float x) noexcept {
    if constexpr (std::same_as<S, float>) {
        return bits_float(is_finite(x) ? float_bits(x) : float_bits(quiet_nan));
    } else {
        const std::uint32_t magnitude = float_bits(x) & 0x7fffffffu;
        const S nearest(bits_float(magnitude));
        const std::uint32_t bits = nearest.bits + (float_bits(static_cast<float>(nearest)) < magnitude ? 1u : 0u);
        const bool finite = is_finite(static_cast<float>(S::from_bits(static_cast<std::uint16_t>(bits))));
        const std::uint32_t held = bits | (float_bits(x) >> 16 & 0x8000u);
        return S::from_bits(static_cast<std::uint16_t>(finite ? held : S(quiet_nan).bits));
    }
}

/// The largest S not above x; NaN if x is not finite or below every finite S.
template <scale_type S>
constexpr ZEROPP_HOST_DEVICE S round_down(float x) noexcept {
    if constexpr (std::same_as<S, float>) {
        return is_finite(x) ? x : quiet_nan;
    } else {
        S s(x);
        const float stored = static_cast<float>(s);
        if (stored > x) {
            // One step down: a positive value towards zero, a negative one away from it, zero to the nearest negative
            // value.
            if (stored > 0) {
                --s.bits;
            } else if (stored < 0) {
                ++s.bits;
            } else {
                s.bits = 0x8001u;
            }
        }
        return is_finite(static_cast<float>(s)) ? s : S(quiet_nan);
    }
}

/// The smallest nonzero step of a block: its reciprocal is still a finite float.
inline constexpr float smallest_step = 0x1p-126f;

/// The stored step of a block: extent / top with its magnitude rounded up to an S, not below `smallest_step` unless the
/// extent is zero. `top` is the outermost code, and `top` steps from `origin` are a finite float. If rounding up
/// exceeds that, a float step is the next smaller one, too little for the extreme to notice; a coarser S gives NaN.
template <scale_type S>
constexpr ZEROPP_HOST_DEVICE S stored_step(float extent, float top, float origin = 0.0f) noexcept {
    const std::uint32_t ideal = float_bits(quotient(extent, top));
    // The quotient of a tiny extent may be zero, with the right sign. So `extent` is tested.
    const bool tiny = (ideal & 0x7fffffffu) < float_bits(smallest_step) && extent != 0;
    const S step =
        round_away_from_zero<S>(bits_float(tiny ? (ideal & 0x80000000u) | float_bits(smallest_step) : ideal));
    const float stored = static_cast<float>(step);
    const bool beyond = is_finite(stored) && !is_finite(origin + product(stored, top));
    if constexpr (std::same_as<S, float>) {
        return bits_float(float_bits(step) - (beyond ? 1u : 0u));
    } else {
        return S::from_bits(beyond ? S(quiet_nan).bits : step.bits);
    }
}

/// The integer nearest to x / step (ties to even) within [low, high]. With a `noise` uniform over (-1/2, 1/2), one of
/// the two integers next to x / step, the nearer one more often: x / step on average. Multiples of a step stay. 0 if
/// `step` is 0, or not finite, in a block that decodes to NaN. Requires -2^22 <= low <= 0 <= high <= 2^22.
///
/// Rounded twice: 1 / step, and its product with x. Then adding 1.5 * 2^23 leaves the integer in the low mantissa bits,
/// by operations that vectorise for every instruction set and give equal bits on all. As integers, such sums order like
/// the floats, even far out of range. So integers are clamped: their minimum is one operation, that of floats several.
template <std::same_as<float>... Noise>
constexpr ZEROPP_HOST_DEVICE std::int32_t nearest_code(float x, float step, std::int32_t low, std::int32_t high,
                                                       Noise... noise) noexcept {
    // Both depend on the block alone, so that compilers hoist them out of loops. They would not hoist a division in a
    // branch.
    const bool extent = step != 0;
    const float inverse = quotient(1.0f, extent ? step : 1.0f);
    constexpr float middle = 12582912.0f;
    constexpr auto zero = static_cast<std::int32_t>(float_bits(middle));
    const bool decodes = is_finite(step);
    const std::int32_t lowest = zero + (decodes ? low : 0);
    const std::int32_t highest = zero + (decodes ? high : 0);

    const float steps = (product(x, extent ? inverse : 0.0f) + ... + noise);
    const auto code = static_cast<std::int32_t>(float_bits(steps + middle));
    const std::int32_t raised = code < lowest ? lowest : code;
    // Named: GCC would subtract in both arms of a conditional, and have no minimum.
    const std::int32_t bounded = raised > highest ? highest : raised;
    return bounded - zero;
}

}  // namespace zeropp
