#pragma once
/// \file
/// Floats of up to 8 bits by definition: a table has each code's value, and all are searched for the nearest.

#include <zeropp/quantizer/small_float.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace zeropp_test {

/// Non-negative finite values of a format, by code.
struct small_float_format {
    std::string name;
    int exponent_bits;
    int mantissa_bits;
    std::vector<double> values;

    small_float_format(std::string its_name, int exponents, int mantissas, std::size_t finite_values)
        : name(std::move(its_name)), exponent_bits(exponents), mantissa_bits(mantissas) {
        const int bias = (1 << (exponent_bits - 1)) - 1;
        for (int code = 0; code != static_cast<int>(finite_values); ++code) {
            const int exponent = code >> mantissa_bits;
            const double fraction = std::ldexp(code % (1 << mantissa_bits), -mantissa_bits);
            values.push_back(exponent == 0 ? std::ldexp(fraction, 1 - bias)
                                           : std::ldexp(1 + fraction, exponent - bias));
        }
    }

    std::uint32_t sign_bit() const { return 1u << (exponent_bits + mantissa_bits); }
    double largest() const { return values.back(); }

    double value(std::uint32_t code) const {
        const double magnitude = values.at(code & (sign_bit() - 1u));
        return (code & sign_bit()) != 0 ? -magnitude : magnitude;
    }

    /// Code nearest to x, the even one of two. Above the largest value, that value's code.
    std::uint32_t nearest(double x) const {
        const std::uint32_t sign = std::signbit(x) ? sign_bit() : 0u;
        // Far above the largest value, all differences are equal in double.
        if (std::fabs(x) >= largest()) return sign | static_cast<std::uint32_t>(values.size() - 1);
        std::uint32_t best = 0;
        for (std::uint32_t code = 1; code != values.size(); ++code) {
            const double off = std::fabs(values[code] - std::fabs(x));
            const double least = std::fabs(values[best] - std::fabs(x));
            if (off < least || (off == least && code % 2 == 0)) best = code;
        }
        return sign | best;
    }
};

inline const small_float_format e4m3_format("e4m3", 4, 3, 127);
inline const small_float_format e5m2_format("e5m2", 5, 2, 124);
inline const small_float_format e2m3_format("e2m3", 2, 3, 32);
inline const small_float_format e3m2_format("e3m2", 3, 2, 32);
inline const small_float_format e2m1_format("e2m1", 2, 1, 8);

template <class Format>
const small_float_format& small_format_of() {
    if constexpr (std::is_same_v<Format, zeropp::e4m3>) return e4m3_format;
    if constexpr (std::is_same_v<Format, zeropp::e5m2>) return e5m2_format;
    if constexpr (std::is_same_v<Format, zeropp::e2m3>) return e2m3_format;
    if constexpr (std::is_same_v<Format, zeropp::e3m2>) return e3m2_format;
    if constexpr (std::is_same_v<Format, zeropp::e2m1>) return e2m1_format;
}

}  // namespace zeropp_test
