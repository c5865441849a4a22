#pragma once
/// \file
/// Arithmetic of exact differences, for host and device: codes of elements, bits of codes, and the choice of a reach.

#include <zeropp/core/config.hpp>
#include <zeropp/core/element.hpp>
#include <zeropp/core/math.hpp>
#include <zeropp/layout/exact_differences.hpp>

#include <cstdint>
#include <type_traits>

namespace zeropp::detail {

/// Number of bits below the exponent field of a 16-bit element.
template <class T>
inline constexpr int exponent_shift = 0;
template <>
inline constexpr int exponent_shift<bfloat16> = 7;
template <>
inline constexpr int exponent_shift<half> = 10;

/// An element type that exact differences carry: bfloat16 or half.
template <class T>
concept exact_element = exponent_shift<T> != 0;

/// The exponent field of the element T with bits `bits`.
template <exact_element T>
constexpr ZEROPP_HOST_DEVICE inline std::uint8_t exponent_of(std::uint16_t bits) {
    return static_cast<std::uint8_t>((bits & 0x7fffu) >> exponent_shift<T>);
}

/// The bits of x as a T, rounded as cast_to<T> does if x is of another type.
template <exact_element T, element S>
constexpr ZEROPP_HOST_DEVICE inline std::uint16_t exact_bits(S x) {
    if constexpr (std::is_same_v<S, T>) {
        return x.bits;
    } else {
        return element_traits<T>::from_float(element_traits<S>::to_float(x)).bits;
    }
}

/// The key of an element, from its bits; also its bits, from its key. Keys have the order of the elements' values.
constexpr ZEROPP_HOST_DEVICE inline std::uint16_t exact_key(std::uint16_t bits) {
    const auto sign = static_cast<std::int16_t>(static_cast<std::int16_t>(bits) >> 15);
    return static_cast<std::uint16_t>(bits ^ (static_cast<std::uint16_t>(sign) & 0x7fffu));
}
/// The code of an element, from its bits and its old bits; 0 if and only if these are equal.
constexpr ZEROPP_HOST_DEVICE inline std::uint16_t exact_code(std::uint16_t bits, std::uint16_t old) {
    const auto step = static_cast<std::uint16_t>(exact_key(bits) - exact_key(old));
    const auto sign = static_cast<std::uint16_t>(static_cast<std::int16_t>(step) >> 15);
    return static_cast<std::uint16_t>(static_cast<std::uint16_t>(step << 1) ^ sign);
}
/// The bits of an element, from its code and its old bits.
constexpr ZEROPP_HOST_DEVICE inline std::uint16_t from_exact_code(std::uint16_t code, std::uint16_t old) {
    const auto sign = static_cast<std::uint16_t>(-(code & 1));
    const auto step = static_cast<std::uint16_t>(static_cast<std::uint16_t>(code >> 1) ^ sign);
    return exact_key(static_cast<std::uint16_t>(exact_key(old) + step));
}

/// Number of bits of the code of an element with old exponent field `exponent`, in a block of reach `reach`.
constexpr ZEROPP_HOST_DEVICE inline int code_bits(int reach, int exponent) {
    const int bits = reach - exponent;
    return bits < 0 ? 0 : bits > exact_differences::most_bits ? exact_differences::most_bits : bits;
}
/// Number of bits of the code `code` without leading zeros, plus 126; 0 if the code is 0. Integers below 2^16 are exact
/// as floats, and a float's exponent field has this number.
constexpr ZEROPP_HOST_DEVICE inline std::uint8_t code_length(std::uint16_t code) {
    return static_cast<std::uint8_t>(float_bits(static_cast<float>(static_cast<int>(code))) >> 23);
}
/// The smallest reach of a block in which an element is no exception, from its `code_length` and its old exponent
/// field; 255 if no block has it.
constexpr ZEROPP_HOST_DEVICE inline std::uint8_t needed_reach(std::uint8_t length, std::uint8_t exponent) {
    constexpr std::uint8_t most = exact_differences::most_bits + 126;
    const auto reach = static_cast<std::uint8_t>(exponent + static_cast<std::uint8_t>(length - 126));
    const auto bounded =
        static_cast<std::uint8_t>(length > most || reach < exponent ? exact_differences::whole : reach);
    return static_cast<std::uint8_t>(length == 0 ? 0 : bounded);
}
/// True if a reach is large enough for a block. The block then has `exceptions` exceptions, of `changed` elements that
/// have changed, and `coded` elements with at least one bit. A block has the smallest reach that is large enough, and
/// is whole if no reach below 255 is. The condition is fitted to trained weights: 1 to 10 % above the fewest bytes.
constexpr ZEROPP_HOST_DEVICE inline bool reaches(int exceptions, int changed, int coded) {
    return exceptions * (16 + changed) <= 8 * coded;
}

/// Search for a block's reach. Begins with a guess, so that a near guess takes two steps.
struct reach_search {
    /// The reach to try next.
    int reach;
    /// Bounds of the block's reach, which is `enough` when the search is done.
    int least = 0;
    int enough = exact_differences::whole;
    int step = 1;

    constexpr ZEROPP_HOST_DEVICE bool done() const { return least == enough; }
    /// Goes on after a try of `reach`: it was large enough, or not.
    constexpr ZEROPP_HOST_DEVICE void take(bool is_enough) {
        if (is_enough) {
            enough = reach;
            reach = least != 0 ? (least + enough) / 2 : enough < step ? 0 : enough - step;
        } else {
            least = reach + 1;
            const bool bounded = enough != exact_differences::whole;
            reach = bounded ? (least + enough) / 2 : reach + step < enough ? reach + step : enough - 1;
        }
        step *= 2;
    }
};

}  // namespace zeropp::detail
