#pragma once
/// \file
/// Block scales: kept in a narrow type, rounded so that no element of the block is clipped.

#include <zeropp/core/element.hpp>
#include <zeropp/core/math.hpp>

#include <concepts>
#include <cstdint>

namespace zeropp {

/// A type that block scales may be stored in: float, half or bfloat16.
template <class S>
concept scale_type = std::same_as<S, float> || std::same_as<S, half> || std::same_as<S, bfloat16>;

/// The smallest S whose magnitude is not below |x|, with the sign of x. A value that S cannot hold becomes NaN. Without
/// a branch: the signs of blocks' extremes are random.
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

/// The largest S not above x. A value that S cannot hold becomes NaN.
template <scale_type S>
constexpr ZEROPP_HOST_DEVICE S round_down(float x) noexcept {
    if constexpr (std::same_as<S, float>) {
        return is_finite(x) ? x : quiet_nan;
    } else {
        S s(x);
        const float stored = static_cast<float>(s);
        if (stored > x) {
            // One step down: towards zero from a positive value, away from it otherwise; zero steps to the smallest
            // negative value.
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

/// The smallest step that a block may have: its reciprocal is still a finite float.
inline constexpr float smallest_step = 0x1p-126f;

/// The step of a block as it is stored: extent / top with its magnitude rounded up to an S, not below `smallest_step`
/// unless the extent is zero. `top` steps (the furthest code) from `origin` are a finite float: where rounding up would
/// go beyond, a float step is the next smaller one, too little for the extreme to notice; a coarser S gives NaN.
template <scale_type S>
constexpr ZEROPP_HOST_DEVICE S stored_step(float extent, float top, float origin = 0.0f) noexcept {
    const std::uint32_t ideal = float_bits(quotient(extent, top));
    // The quotient of a tiny extent may be zero, so it is the extent that is asked; it has the sign all the same.
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

/// x / step; 0 in a block without extent. Two roundings: of 1 / step, and of its product with x.
constexpr ZEROPP_HOST_DEVICE inline float steps_of(float x, float step) noexcept {
    // These depend on the block alone: compilers take them out of loops. The division is made whatever the step, for
    // one in a branch they leave where it is.
    const bool extent = step != 0;
    const float inverse = quotient(1.0f, extent ? step : 1.0f);
    return product(x, extent ? inverse : 0.0f);
}

/// The integer nearest to `steps` (ties to even) within [low, high]; 0 in a block that decodes to NaN, which `step`
/// says. Requires -2^22 <= low <= 0 <= high <= 2^22.
///
/// Adding 1.5 * 2^23 leaves the integer in the low mantissa bits: operations that vectorise for every instruction set
/// and give the same bits on all of them. As integers such sums order like the floats, also far out of the range, so
/// there they are bounded: a minimum of floats is several operations, one of integers is one.
constexpr ZEROPP_HOST_DEVICE inline std::int32_t whole_code(float steps, float step, std::int32_t low,
                                                            std::int32_t high) noexcept {
    constexpr float middle = 12582912.0f;
    constexpr auto zero = static_cast<std::int32_t>(float_bits(middle));
    const bool decodes = is_finite(step);
    const std::int32_t lowest = zero + (decodes ? low : 0);
    const std::int32_t highest = zero + (decodes ? high : 0);

    const auto code = static_cast<std::int32_t>(float_bits(steps + middle));
    const std::int32_t raised = code < lowest ? lowest : code;
    // By name: GCC would subtract in both arms of a conditional, and have no minimum.
    const std::int32_t bounded = raised > highest ? highest : raised;
    return bounded - zero;
}

/// The integer nearest to x / step within [low, high].
constexpr ZEROPP_HOST_DEVICE inline std::int32_t nearest_code(float x, float step, std::int32_t low,
                                                              std::int32_t high) noexcept {
    return whole_code(steps_of(x, step), step, low, high);
}

/// One of the two integers next to x / step within [low, high], the nearer one more often: for `noise` uniform over
/// (-1/2, 1/2), x / step on average. A multiple of a step is kept.
constexpr ZEROPP_HOST_DEVICE inline std::int32_t dithered_code(float x, float step, std::int32_t low, std::int32_t high,
                                                               float noise) noexcept {
    return whole_code(steps_of(x, step) + noise, step, low, high);
}

}  // namespace zeropp
