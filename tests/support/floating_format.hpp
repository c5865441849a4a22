#pragma once
/// \file
/// Binary floating-point formats by their definition: the reference for conversions and stored scales.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <string>
#include <vector>

namespace zeropp_test {

/// An IEEE binary format. Values are doubles; encodings are the low bits of an integer.
struct floating_format {
    int exponent_bits;
    int mantissa_bits;

    std::uint32_t infinity() const { return ((1u << exponent_bits) - 1u) << mantissa_bits; }
    std::uint32_t sign_bit() const { return 1u << (exponent_bits + mantissa_bits); }
    int bytes() const { return (1 + exponent_bits + mantissa_bits) / 8; }
    int smallest_exponent() const { return 2 - (1 << (exponent_bits - 1)); }
    double largest() const { return value(infinity() - 1); }

    /// Value of an encoding.
    double value(std::uint32_t bits) const {
        const double sign = (bits & sign_bit()) != 0 ? -1.0 : 1.0;
        const std::uint32_t magnitude = bits & (sign_bit() - 1u);
        const std::uint32_t mantissa = magnitude & ((1u << mantissa_bits) - 1u);
        const int exponent = static_cast<int>(magnitude >> mantissa_bits);
        const int smallest = smallest_exponent() - mantissa_bits;
        if (magnitude > infinity()) return std::numeric_limits<double>::quiet_NaN();
        if (magnitude == infinity()) return sign * std::numeric_limits<double>::infinity();
        if (exponent == 0) return sign * std::ldexp(mantissa, smallest);
        return sign * std::ldexp(mantissa + (1u << mantissa_bits), smallest + exponent - 1);
    }

    /// Largest encoding with a value not above `magnitude`, which must not be negative or NaN. Encodings of positive
    /// values are in the order of the values.
    std::uint32_t floor(double magnitude) const {
        std::uint32_t low = 0;
        std::uint32_t high = infinity() + 1;
        while (high - low > 1) {
            const std::uint32_t middle = low + (high - low) / 2;
            (value(middle) <= magnitude ? low : high) = middle;
        }
        return low;
    }

    /// Smallest encoding with a value not below `magnitude`; may be infinity.
    std::uint32_t ceil(double magnitude) const {
        const std::uint32_t below = floor(magnitude);
        return value(below) == magnitude ? below : below + 1;
    }

    /// Nearest encoding, ties to the even one, for any x but NaN. Beyond the largest finite value the format is
    /// continued by one step; x from the middle of that step on is infinite.
    std::uint32_t nearest(double x) const {
        const std::uint32_t sign = std::signbit(x) ? sign_bit() : 0u;
        const double magnitude = std::fabs(x);
        const std::uint32_t below = floor(magnitude);
        if (below == infinity()) return sign | below;
        const double low = value(below);
        const double high = below + 1 == infinity() ? std::ldexp(1.0, 1 << (exponent_bits - 1)) : value(below + 1);
        const double to_low = magnitude - low;
        const double to_high = high - magnitude;
        const bool up = to_low > to_high || (to_low == to_high && below % 2 != 0);
        return sign | (up ? below + 1 : below);
    }

    /// Distance between values around x.
    double spacing(double x) const {
        const int exponent = x == 0 ? smallest_exponent() : std::max(std::ilogb(x), smallest_exponent());
        return std::ldexp(1.0, exponent - mantissa_bits);
    }

    /// The value of the nearest encoding, or x if it is not finite; without a search.
    double rounded(double x) const {
        if (!(std::fabs(x) <= std::numeric_limits<double>::max())) return x;
        const double y = std::nearbyint(x / spacing(x)) * spacing(x);
        return std::fabs(y) > largest() ? std::copysign(std::numeric_limits<double>::infinity(), y) : y;
    }
};

inline constexpr floating_format fp16_format{5, 10};
inline constexpr floating_format bf16_format{8, 7};
inline constexpr floating_format fp32_format{8, 23};

inline std::uint32_t bits_of(float x) { return std::bit_cast<std::uint32_t>(x); }
inline float float_of(std::uint32_t bits) { return std::bit_cast<float>(bits); }
inline bool is_nan(float x) { return (bits_of(x) & 0x7fffffffu) > 0x7f800000u; }
inline bool is_finite(double x) { return std::fabs(x) <= std::numeric_limits<double>::max(); }

/// True if a and b are equal to the bit, or both NaN.
inline bool same(float a, float b) { return is_nan(a) ? is_nan(b) : bits_of(a) == bits_of(b); }

/// Floats in hexadecimal, for reports of tests: shows denormals and last bits.
inline std::string text_of(float x) {
    char text[32];
    std::snprintf(text, sizeof text, "%a", static_cast<double>(x));
    return text;
}
inline std::string text_of(const std::vector<float>& values) {
    std::string text;
    for (const float x : values) text += (text.empty() ? "" : " ") + text_of(x);
    return text;
}

}  // namespace zeropp_test
