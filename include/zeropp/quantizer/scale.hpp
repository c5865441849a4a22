#pragma once
/// \file
/// Scales of blocks, stored in a narrow type and rounded so that no element of a block is clipped; codes by a scale.

#include <zeropp/core/element.hpp>
#include <zeropp/core/math.hpp>

#include <concepts>
#include <cstdint>

namespace zeropp {

/// A type of stored block scales: float, half or bfloat16.
template <class S>
concept scale_type = std::same_as<S, float> || std::same_as<S, half> || std::same_as<S, bfloat16>;

/// The S of least magnitude not below |x|, with the sign of x; NaN if no finite S is as large. Does not branch
/// on the sign, which is random from block to block.
template <scale_type S>
constexpr ZEROPP_HOST_DEVICE S round_away_from_zero(float x) noexcept {
    if constexpr (std::same_as<S, float>) {
        return bits_float(is_finite(x) ? float_bits(x) : float_bits(quiet_nan));
    } else {
        const std::uint32_t magnitude = float_bits(x) & 0x7fffffffu;
        std::uint32_t bits = (magnitude + 0xffffu) >> 16;  // a bfloat16 is the upper half of a float
        if constexpr (std::same_as<S, half>) {
            const S nearest(bits_float(magnitude));
            bits = nearest.bits + (float_bits(static_cast<float>(nearest)) < magnitude ? 1u : 0u);
        }
        const bool finite = bits < S(bits_float(infinity_bits)).bits;
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
/// `extent` is zero. `top` is the outermost code's value, in steps, and `origin` the value of code 0. If rounding up
/// makes origin + top * step infinite, a float step is one float smaller, and the extreme keeps its code. A step of
/// another S is then NaN.
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

namespace detail {

/// 1 / divisor in two parts: fma(x, high, x * low) is x / divisor, correctly rounded, for every x that is not
/// `is_tiny`.
///
/// Rounding changes in the middle between two floats. A quotient by an odd number d is at least 1 / (2 d) of its last
/// place away from there. The fma is off by less than 2^-22 of the last place before it rounds, and d is below 2^20.
/// Powers of two only change exponents.
struct inverse {
    /// 1 / divisor rounded towards zero; 0 for divisors that the constructor does not accept.
    float high = 0;
    /// 1 / divisor - `high`: 0 if `high` is exact, otherwise of equal sign. So products with Inf or zero have one sign.
    float low = 0;

    /// Accepts a whole number from 1 to 2^20 - 1, a power of two from 1 to 2^64, or the negative of such a number.
    constexpr ZEROPP_HOST_DEVICE explicit inverse(float divisor) noexcept {
        const float magnitude = divisor < 0 ? -divisor : divisor;
        const bool power_of_two = (float_bits(divisor) & 0x7fffffu) == 0 && magnitude >= 1 && magnitude <= 0x1p64f;
        const bool below = magnitude >= 1 && magnitude < 0x1p20f;
        if (!power_of_two && !(below && static_cast<float>(static_cast<std::int32_t>(divisor)) == divisor)) return;
        const double exact = static_cast<double>(divisor);
        high = 1.0f / divisor;
        if (static_cast<double>(high) * exact > 1) high = bits_float(float_bits(high) - 1);
        low = static_cast<float>((1 - static_cast<double>(high) * exact) / exact);
    }
};

/// True for magnitudes below 2^-80 other than 0. Multiplied by the parts of an `inverse`, these give denormal
/// products, which are rounded too much.
constexpr ZEROPP_HOST_DEVICE inline bool is_tiny(float x) noexcept {
    return 2 * float_bits(x) - 1 < 2 * float_bits(0x1p-80f) - 1;
}

}  // namespace detail

/// The stored step of a block that gives the extreme value `extent` the code `Top`: extent / Top, rounded as by
/// `stored_step`; NaN if `extent` is not finite.
template <scale_type S, std::int32_t Top>
constexpr ZEROPP_HOST_DEVICE S whole_step(float extent) noexcept {
#if defined(__CUDA_ARCH__)
    // No division and no bounds: for these magnitudes, steps are far from the smallest and the largest float.
    constexpr std::uint32_t least = float_bits(0x1p-80f);
    if ((float_bits(extent) & 0x7fffffffu) - least < float_bits(0x1p100f) - least) {
        constexpr detail::inverse by(static_cast<float>(Top));
        const float step =
            by.low == 0 ? __fmul_rn(extent, by.high) : __fmaf_rn(extent, by.high, __fmul_rn(extent, by.low));
        if constexpr (std::same_as<S, float>) return step;
        // The upper half of a float, rounded up in magnitude. For these magnitudes, it stays finite.
        if constexpr (std::same_as<S, bfloat16>) {
            return S::from_bits(static_cast<std::uint16_t>((float_bits(step) + 0xffffu) >> 16));
        }
        return round_away_from_zero<S>(step);
    }
#endif
    return is_finite(extent) ? stored_step<S>(extent, static_cast<float>(Top)) : S(quiet_nan);
}

/// The integer nearest to x / step (ties to even) within [low, high]. With a `noise` uniform over (-1/2, 1/2), one of
/// the two integers next to x / step, the nearer one more often. The average is x / step, and multiples of a step stay.
/// Returns 0 if the step is 0 or not finite. Requires -2^22 <= low <= 0 <= high <= 2^22.
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
