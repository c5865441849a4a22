#pragma once
/// \file
/// A quantizer and an element type as a user would write them.

#include <zeropp/core/element.hpp>
#include <zeropp/quantizer/quantizer.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

namespace zeropp_test {

/// A sign bit, a bit for 0 or a power of two that the block shares. Its stats have padding; its parameters are one
/// byte.
struct toy_quantizer {
    static constexpr int block_size = 16;
    static constexpr int code_bits = 2;

    struct params {
        std::int8_t exponent;
    };
    struct stats {
        std::int16_t exponent = -127;
        bool broken = false;

        void add(float x) noexcept {
            if (!std::isfinite(x)) {
                broken = true;
            } else if (x != 0.0f) {
                exponent = std::max(exponent, static_cast<std::int16_t>(std::ilogb(x) + 1));
            }
        }
        void merge(const stats& other) noexcept {
            exponent = std::max(exponent, other.exponent);
            broken = broken || other.broken;
        }
    };

    params fit(const stats& s) const noexcept {
        // 127 means a block that is not finite, -128 a block of zeros.
        if (s.broken || s.exponent > 126) return {127};
        return {s.exponent <= -127 ? std::int8_t{-128} : static_cast<std::int8_t>(s.exponent)};
    }
    std::uint32_t encode(float x, const params& p) const noexcept {
        const float level = std::ldexp(1.0f, p.exponent - 1);
        return (std::fabs(x) >= level / 2 ? 1u : 0u) | (std::signbit(x) ? 2u : 0u);
    }
    float decode(std::uint32_t code, const params& p) const noexcept {
        if (p.exponent == 127) return std::numeric_limits<float>::quiet_NaN();
        const float size = (code & 1u) != 0 && p.exponent != -128 ? std::ldexp(1.0f, p.exponent - 1) : 0.0f;
        return (code & 2u) != 0 ? -size : size;
    }
    static zeropp::short_text name() { return "toy"; }
};

/// A number in steps of 1/256; the lowest one is NaN.
struct toy_element {
    std::int16_t steps;
    friend bool operator==(const toy_element&, const toy_element&) = default;
};

}  // namespace zeropp_test

template <>
struct zeropp::element_traits<zeropp_test::toy_element> {
    static constexpr std::string_view name = "toy";
    static float to_float(zeropp_test::toy_element x) noexcept {
        return x.steps == -32768 ? std::numeric_limits<float>::quiet_NaN() : static_cast<float>(x.steps) / 256.0f;
    }
    static zeropp_test::toy_element from_float(float x) noexcept {
        if (x != x) return {-32768};
        const float bounded = std::fmin(std::fmax(x * 256.0f, -32767.0f), 32767.0f);
        return {static_cast<std::int16_t>(std::nearbyint(bounded))};
    }
};
