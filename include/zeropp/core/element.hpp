#pragma once
/// \file
/// Element types of tensors, and their conversions to and from float. All arithmetic is in float.

#include <zeropp/core/config.hpp>
#include <zeropp/core/math.hpp>

#include <concepts>
#include <cstdint>
#include <string_view>
#include <type_traits>

namespace zeropp {

/// An IEEE binary16 number, stored as its bits. Conversion from float rounds to nearest even; NaN becomes 0x7e00, with
/// the sign kept.
struct half {
    std::uint16_t bits;

    half() = default;
    constexpr ZEROPP_HOST_DEVICE explicit half(float x) : bits(from(x)) {}

    /// The half with the given bits.
    static constexpr ZEROPP_HOST_DEVICE half from_bits(std::uint16_t bits) { return __builtin_bit_cast(half, bits); }

    constexpr ZEROPP_HOST_DEVICE explicit operator float() const {
        constexpr std::uint32_t rebias = 112u << 23;
        const std::uint32_t sign = (bits & 0x8000u) << 16;
        const std::uint32_t magnitude = (bits & 0x7fffu) << 13;
        const std::uint32_t exponent = bits & 0x7c00u;
        const std::uint32_t normal = magnitude + rebias;
        const std::uint32_t special = magnitude + 2 * rebias;
        // The subtraction renormalises a subnormal's mantissa.
        const std::uint32_t subnormal =
            float_bits(bits_float(magnitude + rebias + (1u << 23)) - bits_float(rebias + (1u << 23)));
        return bits_float(sign | (exponent == 0 ? subnormal : exponent == 0x7c00u ? special : normal));
    }

private:
    static constexpr ZEROPP_HOST_DEVICE std::uint16_t from(float x) {
        const std::uint32_t sign = (float_bits(x) >> 16) & 0x8000u;
        const std::uint32_t magnitude = float_bits(x) & 0x7fffffffu;
        const std::uint32_t normal = (magnitude - (112u << 23) + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
        // In floats from 0.5 to 1, the last bit has the value 2^-24, as in subnormal halves. So adding 0.5 rounds.
        const std::uint32_t subnormal = float_bits(bits_float(magnitude) + 0.5f) - float_bits(0.5f);
        const std::uint32_t finite = magnitude < 0x38800000u ? subnormal : normal;
        const std::uint32_t bounded = magnitude >= 0x477ff000u ? 0x7c00u : finite;
        return static_cast<std::uint16_t>(sign | (magnitude > infinity_bits ? 0x7e00u : bounded));
    }
};

/// A bfloat16 number, stored as its bits. Conversion from float rounds to nearest even; NaN becomes 0x7fc0, with the
/// sign kept.
struct bfloat16 {
    std::uint16_t bits;

    bfloat16() = default;
    constexpr ZEROPP_HOST_DEVICE explicit bfloat16(float x) : bits(from(x)) {}

    /// The bfloat16 with the given bits.
    static constexpr ZEROPP_HOST_DEVICE bfloat16 from_bits(std::uint16_t bits) {
        return __builtin_bit_cast(bfloat16, bits);
    }

    constexpr ZEROPP_HOST_DEVICE explicit operator float() const {
        return bits_float(static_cast<std::uint32_t>(bits) << 16);
    }

private:
    static constexpr ZEROPP_HOST_DEVICE std::uint16_t from(float x) {
        // `rounded` and `nan` keep 32 bits until one is chosen. Otherwise compilers narrow one first, in more vector
        // instructions.
        const std::uint32_t b = float_bits(x);
        const std::uint32_t rounded = b + 0x7fffu + ((b >> 16) & 1u);
        const std::uint32_t nan = (b & 0x80000000u) | 0x7fc00000u;
        const std::uint32_t chosen = (b & 0x7fffffffu) > infinity_bits ? nan : rounded;
        return static_cast<std::uint16_t>(chosen >> 16);
    }
};

/// Conversion of an element type to float and back. Specialise it for a framework's element type. Members:
///   `name`            std::string_view that names the type; ranks compare it if their transport is `checked`
///   `to_float(x)`     exact
///   `from_float(x)`   rounds to nearest even; keeps NaN
/// Both functions are static, noexcept and ZEROPP_HOST_DEVICE.
template <class T>
struct element_traits;

/// Base class of the `element_traits` of a type that converts explicitly from and to float.
template <class T>
struct converting_element_traits {
    static constexpr ZEROPP_HOST_DEVICE float to_float(T x) noexcept { return static_cast<float>(x); }
    static constexpr ZEROPP_HOST_DEVICE T from_float(float x) noexcept { return static_cast<T>(x); }
};

/// Traits of float elements. Names of quantizers and error texts contain `name`.
template <>
struct element_traits<float> : converting_element_traits<float> {
    static constexpr std::string_view name = "fp32";
};

/// Traits of half elements, IEEE binary16.
template <>
struct element_traits<half> : converting_element_traits<half> {
    static constexpr std::string_view name = "fp16";
};

/// Traits of bfloat16 elements.
template <>
struct element_traits<bfloat16> : converting_element_traits<bfloat16> {
    static constexpr std::string_view name = "bf16";
};

/// An element type of tensors: trivially copyable, with `element_traits`.
template <class T>
concept element = std::is_trivially_copyable_v<T> && requires(T x, float f) {
    { element_traits<T>::to_float(x) } noexcept -> std::same_as<float>;
    { element_traits<T>::from_float(f) } noexcept -> std::same_as<T>;
    { element_traits<T>::name } -> std::convertible_to<std::string_view>;
};

}  // namespace zeropp
