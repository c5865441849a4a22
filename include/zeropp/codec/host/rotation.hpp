#pragma once
/// \file
/// Walsh-Hadamard transforms on the host.

#include <zeropp/codec/host/share.hpp>
#include <zeropp/codec/host/target.hpp>
#include <zeropp/core/math.hpp>
#include <zeropp/quantizer/quantizer.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

namespace zeropp::detail {

ZEROPP_DETAIL_INLINE_BEGIN

#if ZEROPP_DETAIL_HAS_WIDE_TARGETS
/// One stage within a vector. Products with 1 and -1 are exact, so that they may be fused.
template <int Stride, class Floats, int... I>
void butterflies_inside(Floats& x, std::integer_sequence<int, I...>) {
    constexpr Floats signs = {((I & Stride) != 0 ? -1.0f : 1.0f)...};
    x = x * signs + __builtin_shufflevector(x, x, (I ^ Stride)...);
}

/// to <- n values, each window of `Size` transformed and `scaled`, in the vectors of `Target`: compilers do not
/// vectorise strides within a vector. `to` may be `from`. Requires n to be a multiple of 256.
template <host_target Target, std::size_t Size>
void rotate_in_vectors(target_type<Target>, std::integral_constant<std::size_t, Size>, const float* from, std::size_t n,
                       float scale, float* to) {
    constexpr std::size_t lanes = Target == host_target::avx512 ? 16 : 8;
    using floats [[gnu::vector_size(4 * lanes)]] = float;
    using ints [[gnu::vector_size(4 * lanes)]] = int;
    constexpr auto each_lane = std::make_integer_sequence<int, static_cast<int>(lanes)>();
    constexpr int minus_zero = std::numeric_limits<int>::min();
    constexpr std::size_t many = std::max(Size / lanes, std::size_t{1});
    for (std::size_t i = 0; i != n; i += many * lanes) {
        floats x[many];
        ZEROPP_DETAIL_UNROLL(32)
        for (std::size_t k = 0; k != many; ++k) {
            std::memcpy(&x[k], from + i + k * lanes, sizeof x[k]);
            butterflies_inside<1>(x[k], each_lane);
            butterflies_inside<2>(x[k], each_lane);
            butterflies_inside<4>(x[k], each_lane);
            if constexpr (Size > 8 && lanes > 8) butterflies_inside<8>(x[k], each_lane);
        }
        ZEROPP_DETAIL_UNROLL(5)
        for (std::size_t stride = 1; stride < many; stride *= 2) {
            ZEROPP_DETAIL_UNROLL(32)
            for (std::size_t k = 0; k != many; ++k) {
                if ((k & stride) != 0) continue;
                const floats sum = x[k] + x[k + stride];
                x[k + stride] = x[k] - x[k + stride];
                x[k] = sum;
            }
        }
        ZEROPP_DETAIL_UNROLL(32)
        for (std::size_t k = 0; k != many; ++k) {
            x[k] = x[k] * scale;
            ints bits;
            std::memcpy(&bits, &x[k], sizeof bits);
            bits &= bits != minus_zero;
            std::memcpy(to + i + k * lanes, &bits, sizeof bits);
        }
    }
}
#endif

/// One stage over N values. One loop over all windows is vectorised even if the stride is small.
template <std::size_t Stride, std::size_t N>
void butterflies(const float* __restrict from, float* __restrict to) {
    for (std::size_t pairs = 0; pairs != N; pairs += 2 * Stride) {
        for (std::size_t i = pairs; i != pairs + Stride; ++i) {
            to[i] = from[i] + from[i + Stride];
            to[i + Stride] = from[i] - from[i + Stride];
        }
    }
}

/// x * scale, a power of two; every zero is +0. For products too small for a float, `product` leaves the sign to the
/// compiler.
inline float scaled(float x, float scale) {
    const std::uint32_t bits = float_bits(x * scale);
    return bits_float(bits == 0x80000000u ? 0u : bits);
}

/// result <- N / Size windows of `from` after the stages from `Stride` on, `scaled`. Stages alternate between buffers.
template <std::size_t Size, std::size_t N, std::size_t Stride = 1>
void rotate_windows(const float* from, float* buffer, float* other, float scale, float* result) {
    if constexpr (Stride == Size) {
        for (std::size_t i = 0; i != N; ++i) result[i] = scaled(from[i], scale);
    } else {
        butterflies<Stride, N>(from, buffer);
        rotate_windows<Size, N, 2 * Stride>(buffer, other, buffer, scale, result);
    }
}

/// to <- n values, whole windows rotated for Q, or rotated back, others unchanged; `to` may be `from`.
template <quantizer Q, class Count>
void rotate(const float* from, Count n, bool back, float* to) {
    constexpr auto size = static_cast<std::size_t>(rotation_size<Q>());
    constexpr std::size_t many = 256;
    std::size_t begin = 0;
    if constexpr (size > 1) {
        const float scale = rotation_scale<rotation_size<Q>()>(back);
        const std::size_t in_lots = n / many * many;
        const auto in_vectors = [&](auto target) {
            rotate_in_vectors(target, std::integral_constant<std::size_t, size>(), from, in_lots, scale, to);
        };
        if constexpr (is_multiple_on<Count, host_target::avx512, 1>) {
            run_avx512(in_vectors);
            begin = in_lots;
        } else if constexpr (is_multiple_on<Count, host_target::avx2, 1>) {
            run_avx2(in_vectors);
            begin = in_lots;
        }
        float buffer[many];
        float other[many];
        for (; begin != in_lots; begin += many) {
            rotate_windows<size, many>(from + begin, buffer, other, scale, to + begin);
        }
        for (; begin + size <= n; begin += size) {
            rotate_windows<size, size>(from + begin, buffer, other, scale, to + begin);
        }
    }
    if (from != to && begin != n) std::memcpy(to + begin, from + begin, (n - begin) * sizeof(float));
}

ZEROPP_DETAIL_INLINE_END

}  // namespace zeropp::detail
