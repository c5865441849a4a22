#pragma once
/// \file
/// The quantizer that stores elements as numbers of an element type, such as bfloat16.

#include <zeropp/core/element.hpp>
#include <zeropp/quantizer/quantizer.hpp>

#include <cstdint>
#include <type_traits>

namespace zeropp {

/// Carries every element as a T: exact if T can hold it, otherwise rounded once. The baseline of comparisons, and the
/// choice for small or delicate tensors. NaN and Inf affect no other element.
template <element T>
    requires(sizeof(T) == 2 || sizeof(T) == 4)
struct cast_to {
    using element_type = T;

    static constexpr int block_size = 256;
    static constexpr int code_bits = 8 * static_cast<int>(sizeof(T));

    struct params {};
    struct stats {
        constexpr ZEROPP_HOST_DEVICE void add(float) noexcept {}
        constexpr ZEROPP_HOST_DEVICE void merge(const stats&) noexcept {}
    };

    constexpr ZEROPP_HOST_DEVICE params fit(const stats&) const noexcept { return {}; }

    constexpr ZEROPP_HOST_DEVICE std::uint32_t encode(float x, const params&) const noexcept {
        return __builtin_bit_cast(bits_type, element_traits<T>::from_float(x));
    }
    constexpr ZEROPP_HOST_DEVICE float decode(std::uint32_t code, const params&) const noexcept {
        return element_traits<T>::to_float(__builtin_bit_cast(T, static_cast<bits_type>(code)));
    }
    constexpr ZEROPP_HOST_DEVICE float error_bound(float x, const params& p) const noexcept {
        const float d = decode(encode(x, p), p) - x;
        return d < 0 ? -d : d;
    }

    static constexpr short_text name() { return element_traits<T>::name; }

private:
    using bits_type = std::conditional_t<sizeof(T) == 2, std::uint16_t, std::uint32_t>;
};

template <element T>
inline constexpr bool stores_elements<cast_to<T>, T> = true;

static_assert(quantizer<cast_to<float>> && quantizer<cast_to<half>> && quantizer<cast_to<bfloat16>>);

}  // namespace zeropp
