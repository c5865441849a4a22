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

/// The smallest step that a block may have: its reciprocal is still a finite float.
inline constexpr float smallest_step = 0x1p-126f;

/// The step of a block as it is stored: extent / top with its magnitude rounded up to an S, not below `smallest_step`
/// unless the extent is zero. `top` steps (the furthest code) from `origin` are a finite float: where rounding up would
/// go beyond, a float step is the next smaller one, too little for the extreme to notice; a coarser S gives NaN.
template <scale_type S>
constexpr ZEROPP_HOST_DEVICE S stored_step(float extent, float top, float origin = 0.0f) noexcept {
    float ideal = quotient(extent, top);
    // The quotient of a tiny extent may be zero, so it is the extent that is asked.
    if (extent != 0 && ideal < smallest_step && ideal > -smallest_step) {
        ideal = (extent < 0) == (top < 0) ? smallest_step : -smallest_step;
    }
    const S step = round_away_from_zero<S>(ideal);
    const float stored = static_cast<float>(step);
    if (is_finite(stored) && !is_finite(origin + product(stored, top))) {
        if constexpr (std::same_as<S, float>) {
            return bits_float(float_bits(step) - 1);
        } else {
            return S(quiet_nan);
        }
    }
    return step;
}

/// 1 / step, or 0 for a block without extent, whose codes are then all zero.
constexpr ZEROPP_HOST_DEVICE inline float reciprocal_step(float step) noexcept {
    return step == 0 ? 0.0f : quotient(1.0f, step);
}

}  // namespace zeropp
