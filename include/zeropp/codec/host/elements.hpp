#pragma once
/// \file
/// Converts elements to floats and back on the host, and divides sums.

#include <zeropp/codec/host/avx512.hpp>
#include <zeropp/codec/host/pieces.hpp>
#include <zeropp/codec/host/sixteen_bits.hpp>
#include <zeropp/codec/host/target.hpp>
#include <zeropp/core/element.hpp>
#include <zeropp/core/math.hpp>

#include <cstddef>
#include <type_traits>

namespace zeropp::detail {

ZEROPP_DETAIL_INLINE_BEGIN

/// to <- n elements as floats.
template <element T, class Size>
void load_elements(const T* from, Size n, float* to) {
#if ZEROPP_DETAIL_HAS_WIDE_TARGETS
    if constexpr (std::is_same_v<T, half> && avx512::serves<Size, avx512::lanes>) {
        if (avx512::floats_of_halves(from, n, to)) return;
    }
#endif
    for (std::size_t i = 0; i != n; ++i) to[i] = element_traits<T>::to_float(from[i]);
}

/// to <- n floats as elements.
template <element T, class Size>
void store_elements(const float* from, Size n, T* to) {
#if ZEROPP_DETAIL_HAS_WIDE_TARGETS
    if constexpr (std::is_same_v<T, half> && avx512::serves<Size, avx512::lanes>) {
        return avx512::halves_of_floats(from, n, to);
    }
    if constexpr (std::is_same_v<T, bfloat16> && avx512::serves<Size, 2 * avx512::lanes>) {
        if (avx512::bfloat16s_of_floats(from, n, to)) return;
    }
#endif
    for (std::size_t i = 0; i != n; ++i) to[i] = element_traits<T>::from_float(from[i]);
}

/// x[i] <- quotient(x[i], divisor), for n values.
template <class Size>
void divide(float* x, Size n, float divisor) {
    if (divisor == 1.0f) return;
#if ZEROPP_DETAIL_HAS_WIDE_TARGETS
    if constexpr (avx512::serves<Size, 1>) {
        // The reciprocal of a power of two is exact: its product has the quotient's bits and is ten times as fast.
        const bool exact = (float_bits(divisor) & 0x007fffffu) == 0 && divisor >= 0x1p-126f && divisor <= 0x1p126f;
        if (exact) return avx512::multiply(x, n, quotient(1.0f, divisor));
    }
#endif
    for (std::size_t i = 0; i != n; ++i) x[i] = quotient(x[i], divisor);
}

ZEROPP_DETAIL_INLINE_END

}  // namespace zeropp::detail
