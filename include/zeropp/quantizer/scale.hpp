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

/// The S of least magnitude not below |x|, with the sign of x; NaN if no finite S has that magnitude. Does not branch
/// on the sign, which is random from block to block.
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
            // The next lower S: of less magnitude above zero, of more below. Zero becomes the first S below zero.
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

/// The smallest nonzero step of a block. The reciprocal of this step is still a finite float.
inline constexpr float smallest_step = 0x1p-126f;

/// The stored step of a block: extent / top with its magnitude rounded up to an S, not below `smallest_step` unless
/// `extent` is zero. `top` is the outermost code's value, in steps. If rounding up makes origin + top * step infinite,
/// a float step is one float smaller, and the extreme keeps its code; a step of another S is NaN.
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
/// the two integers next to x / step, the nearer one more often. The average is x / step, and multiples of a step stay.
/// Returns 0 for a step of 0, and in a block that decodes to NaN. Requires -2^22 <= low <= 0 <= high <= 2^22.
///
/// Rounds 1 / step, and the product of that and x. Then adds 1.5 * 2^23, which leaves the integer in the low bits of
/// the mantissa. These operations vectorise for every instruction set, with equal bits. The sum's bits are clamped as
/// an integer, which is right even far out of range. A minimum of integers is one operation, of floats several.
template <std::same_as<float>... Noise>
constexpr ZEROPP_HOST_DEVICE std::int32_t nearest_code(float x, float step, std::int32_t low, std::int32_t high,
                                                       Noise... noise) noexcept {
    // `extent` and `inverse` depend on the block alone, so that compilers hoist them out of loops. A division in a
    // branch would not be hoisted.
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
    // A variable: otherwise GCC subtracts in both arms of the conditional, and finds no minimum instruction.
    const std::int32_t bounded = raised > highest ? highest : raised;
    return bounded - zero;
}

}  // namespace zeropp
