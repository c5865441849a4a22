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

namespace zeropp::detail {

ZEROPP_DETAIL_INLINE_BEGIN

#if ZEROPP_DETAIL_HAS_WIDE_TARGETS
/// A vector type of `Lanes` floats, and one stage of stride `Stride` of the transform within a vector. Factors of
/// 1 and -1 are exact, so compilers may fuse products with sums.
template <int Lanes>
struct float_vector;
template <>
struct float_vector<8> {
    using type [[gnu::vector_size(32)]] = float;
    using bits [[gnu::vector_size(32)]] = int;

    template <int Stride>
    static void butterflies(type& x) {
        constexpr auto sign = [](int second) { return second != 0 ? -1.0f : 1.0f; };
        const type signs = {sign(0 & Stride), sign(1 & Stride), sign(2 & Stride), sign(3 & Stride),
                            sign(4 & Stride), sign(5 & Stride), sign(6 & Stride), sign(7 & Stride)};
        x = x * signs + __builtin_shufflevector(x, x, 0 ^ Stride, 1 ^ Stride, 2 ^ Stride, 3 ^ Stride, 4 ^ Stride,
                                                5 ^ Stride, 6 ^ Stride, 7 ^ Stride);
    }
};
template <>
struct float_vector<16> {
    using type [[gnu::vector_size(64)]] = float;
    using bits [[gnu::vector_size(64)]] = int;

    template <int Stride>
    static void butterflies(type& x) {
        constexpr auto sign = [](int second) { return second != 0 ? -1.0f : 1.0f; };
        const type signs = {sign(0 & Stride),  sign(1 & Stride),  sign(2 & Stride),  sign(3 & Stride),
                            sign(4 & Stride),  sign(5 & Stride),  sign(6 & Stride),  sign(7 & Stride),
                            sign(8 & Stride),  sign(9 & Stride),  sign(10 & Stride), sign(11 & Stride),
                            sign(12 & Stride), sign(13 & Stride), sign(14 & Stride), sign(15 & Stride)};
        x = x * signs + __builtin_shufflevector(x, x, 0 ^ Stride, 1 ^ Stride, 2 ^ Stride, 3 ^ Stride, 4 ^ Stride,
                                                5 ^ Stride, 6 ^ Stride, 7 ^ Stride, 8 ^ Stride, 9 ^ Stride, 10 ^ Stride,
                                                11 ^ Stride, 12 ^ Stride, 13 ^ Stride, 14 ^ Stride, 15 ^ Stride);
    }
};

/// Walsh-Hadamard transforms in vectors of `Lanes` floats. Compilers do not vectorise strides shorter than a vector.
template <int Lanes>
struct rotation_in_vectors {
    using floats = typename float_vector<Lanes>::type;
    using ints = typename float_vector<Lanes>::bits;
    /// The bits of -0, as an int.
    static constexpr int smallest_int = std::numeric_limits<int>::min();

    /// Walsh-Hadamard stages of the strides from `Stride` on that lie within a vector, for windows of `Size` floats.
    template <std::size_t Size, int Stride = 1>
    static void all_inside(floats& x) {
        if constexpr (Stride < static_cast<int>(Size) && Stride < Lanes) {
            float_vector<Lanes>::template butterflies<Stride>(x);
            all_inside<Size, 2 * Stride>(x);
        }
    }

    /// to <- the n values of `from`, each window of `Size` values transformed and multiplied by `scale`; every zero is
    /// +0. `to` may be `from`. Requires a power of two `scale`, and n to be a multiple of `Size` and `Lanes`.
    template <std::size_t Size>
    static void windows(const float* from, std::size_t n, float scale, float* to) {
        constexpr std::size_t lanes = Lanes;
        constexpr std::size_t many = std::max(Size / lanes, std::size_t{1});
        for (std::size_t i = 0; i != n; i += many * lanes) {
            floats x[many];
            ZEROPP_DETAIL_UNROLL(32)
            for (std::size_t k = 0; k != many; ++k) {
                std::memcpy(&x[k], from + i + k * lanes, sizeof x[k]);
                all_inside<Size>(x[k]);
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
                bits &= bits != smallest_int;
                std::memcpy(to + i + k * lanes, &bits, sizeof bits);
            }
        }
    }
};
#endif

/// to <- one stage of the Walsh-Hadamard transform of the N values of `from`. N values of several windows let compilers
/// vectorise small strides. Requires N to be a multiple of 2 * Stride, and arrays that do not overlap.
template <std::size_t Stride, std::size_t N>
void butterflies(const float* __restrict from, float* __restrict to) {
    for (std::size_t pairs = 0; pairs != N; pairs += 2 * Stride) {
        for (std::size_t i = pairs; i != pairs + Stride; ++i) {
            to[i] = from[i] + from[i + Stride];
            to[i + Stride] = from[i] - from[i + Stride];
        }
    }
}

/// x * scale for a power of two `scale`; every zero is +0. The function `product` is not used, because it leaves the
/// sign of a product too small for a float to the compiler.
inline float scaled(float x, float scale) {
    const std::uint32_t bits = float_bits(x * scale);
    return bits_float(bits == 0x80000000u ? 0u : bits);
}

/// result <- N values of `from` after Walsh-Hadamard stages of strides `Stride` to `Size` / 2, times `scale`. `buffer`
/// and `other` are scratch of N floats each. Requires N to be a multiple of `Size`, and a power of two `scale`.
template <std::size_t Size, std::size_t N, std::size_t Stride = 1>
void rotate_windows(const float* from, float* buffer, float* other, float scale, float* result) {
    if constexpr (Stride == Size) {
        for (std::size_t i = 0; i != N; ++i) result[i] = scaled(from[i], scale);
    } else {
        butterflies<Stride, N>(from, buffer);
        rotate_windows<Size, N, 2 * Stride>(buffer, other, buffer, scale, result);
    }
}

/// to <- n values of `from`: whole windows rotated for Q, or rotated back if `back`; the rest unchanged. `to` may be
/// `from`. Requires the first value to begin a window.
template <quantizer Q, class Count>
void rotate(const float* from, Count n, bool back, float* to) {
    constexpr auto size = static_cast<std::size_t>(rotation_size<Q>());
    constexpr std::size_t many = 256;
    std::size_t begin = 0;
    if constexpr (size > 1) {
        const float scale = rotation_scale<rotation_size<Q>()>(back);
        const std::size_t in_lots = n / many * many;
#if ZEROPP_DETAIL_HAS_WIDE_TARGETS
        if constexpr (is_multiple_on<Count, host_target::avx512, 1>) {
            run_avx512([&](auto) { rotation_in_vectors<16>::windows<size>(from, in_lots, scale, to); });
            begin = in_lots;
        } else if constexpr (is_multiple_on<Count, host_target::avx2, 1>) {
            run_avx2([&](auto) { rotation_in_vectors<8>::windows<size>(from, in_lots, scale, to); });
            begin = in_lots;
        }
#endif
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
