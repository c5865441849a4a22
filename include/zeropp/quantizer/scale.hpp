#pragma once
/// \file
/// Block scales: kept in a narrow type, rounded so that no element of the block is clipped.

#include <zeropp/core/element.hpp>
#include <zeropp/core/math.hpp>

#include <concepts>

namespace zeropp {

/// A type that block scales may be stored in: float, half or bfloat16.
template <class S>
concept scale_type = std::same_as<S, float> || std::same_as<S, half> || std::same_as<S, bfloat16>;

/// The smallest S whose magnitude is not below |x|, with the sign of x. A value that S cannot hold becomes NaN.
template <scale_type S>
constexpr ZEROPP_HOST_DEVICE S round_away_from_zero(float x) noexcept {
    if constexpr (std::same_as<S, float>) {
        return is_finite(x) ? x : quiet_nan;
    } else {
        S s(x);
        const float stored = static_cast<float>(s);
        const bool short_of_x = x < 0 ? stored > x : stored < x;
        if (short_of_x) ++s.bits;
        return is_finite(static_cast<float>(s)) ? s : S(quiet_nan);
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

/// The next S towards zero. Requires x finite and not zero.
template <scale_type S>
constexpr ZEROPP_HOST_DEVICE S next_towards_zero(S x) noexcept {
    if constexpr (std::same_as<S, float>) {
        return bits_float(float_bits(x) - 1);
    } else {
        --x.bits;
        return x;
    }
}

/// The smallest step that a block may have: its reciprocal is still a finite float.
inline constexpr float smallest_step = 0x1p-126f;

/// The step of a block as it is stored: `ideal` with its magnitude rounded up to an S, not below `smallest_step` unless
/// it is zero, and such that `top` steps (the furthest code) from `origin` are still a finite float.
template <scale_type S>
constexpr ZEROPP_HOST_DEVICE S stored_step(float ideal, float top, float origin = 0.0f) noexcept {
    const float magnitude = ideal < 0 ? -ideal : ideal;
    if (magnitude > 0 && magnitude < smallest_step) ideal = ideal < 0 ? -smallest_step : smallest_step;
    S step = round_away_from_zero<S>(ideal);
    const float stored = static_cast<float>(step);
    if (is_finite(stored) && !is_finite(origin + product(stored, top))) step = next_towards_zero(step);
    return step;
}

/// 1 / step, or 0 for a block without extent, whose codes are then all zero.
constexpr ZEROPP_HOST_DEVICE inline float reciprocal_step(float step) noexcept {
    return step == 0 ? 0.0f : quotient(1.0f, step);
}

}  // namespace zeropp
