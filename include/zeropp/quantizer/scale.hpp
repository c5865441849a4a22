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

/// The integer nearest to x / step (ties to even) within [low, high]; 0 in a block without extent, and in one that
/// decodes to NaN. Requires -2^22 <= low <= 0 <= high <= 2^22. Two roundings: of 1 / step, and of its product with x.
///
/// Adding 1.5 * 2^23 leaves the integer in the low mantissa bits: operations that vectorise for every instruction set
/// and give the same bits on all of them. The magnitude is bounded as an integer, so that no compiler can contract the
/// product with that addition.
constexpr ZEROPP_HOST_DEVICE inline std::int32_t nearest_code(float x, float step, std::int32_t low,
                                                              std::int32_t high) noexcept {
    // These depend on the block alone: compilers take them out of loops. The division is made whatever the step, for
    // one in a branch they leave where it is.
    const bool extent = step != 0;
    const float inverse = quotient(1.0f, extent ? step : 1.0f);
    const float reciprocal = extent ? inverse : 0.0f;
    const std::uint32_t bound = is_finite(step) ? float_bits(static_cast<float>(high > -low ? high : -low)) : 0u;

    const std::uint32_t steps = float_bits(x * reciprocal);
    const std::uint32_t magnitude = steps & 0x7fffffffu;
    const float bounded = bits_float((steps & 0x80000000u) | (magnitude < bound ? magnitude : bound));
    const std::int32_t code = static_cast<std::int32_t>(float_bits(bounded + 12582912.0f)) - 0x4b400000;
    if (low == -high) return code;
    return code < low ? low : code > high ? high : code;
}

}  // namespace zeropp
