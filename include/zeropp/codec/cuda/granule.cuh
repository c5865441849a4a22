#pragma once
/// \file
/// Granules, with their loads and stores. A granule is eight successive elements, which one thread handles. Eight codes
/// of any width fill whole bytes, and eight 16-bit elements are one 16-byte access.

#include <zeropp/codec/cuda/instructions.cuh>
#include <zeropp/core/element.hpp>
#include <zeropp/core/math.hpp>
#include <zeropp/quantizer/scale.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace zeropp::detail {

inline constexpr int granule_size = 8;

/// A granule with the bytes that it has in memory. They are 32-bit words, like registers, if elements have 2 bytes or a
/// multiple of 4. Compilers would take single bytes apart and put them together one by one.
template <class T>
struct raw_granule {
    static constexpr int element_bytes = static_cast<int>(sizeof(T));
    static constexpr bool wide = element_bytes == 2 || element_bytes % 4 == 0;
    /// True if elements have 2 bytes and begin at even addresses.
    static constexpr bool in_halves = element_bytes == 2 && alignof(T) >= 2;
    /// Number of loads or stores for a granule on a 16-byte boundary: 16 bytes each, or one element each unless `wide`.
    static constexpr int accesses = wide ? element_bytes / 2 : granule_size;

    using word = std::conditional_t<wide, std::uint32_t, unsigned char>;
    word data[granule_size * sizeof(T) / sizeof(word)];

    /// Makes a granule of the eight elements `x`.
    __device__ static raw_granule of(const T (&x)[granule_size]) {
        raw_granule r;
        if constexpr (element_bytes == 2) {
#pragma unroll
            for (int w = 0; w != granule_size / 2; ++w) {
                r.data[w] = __builtin_bit_cast(std::uint16_t, x[2 * w]) |
                            static_cast<std::uint32_t>(__builtin_bit_cast(std::uint16_t, x[2 * w + 1])) << 16;
            }
        } else {
            memcpy(r.data, x, sizeof x);
        }
        return r;
    }

    __device__ T at(int i) const {
        if constexpr (element_bytes == 2) {
            return __builtin_bit_cast(T, static_cast<std::uint16_t>(data[i / 2] >> (i % 2 * 16)));
        } else {
            T x;
            memcpy(&x, data + static_cast<std::size_t>(i) * sizeof(T) / sizeof(word), sizeof(T));
            return x;
        }
    }

#if defined(__CUDA_ARCH__)
    /// True if one of the eight elements, which must be halves, is NaN: the NaN-propagating maximum then is NaN, too.
    __device__ bool has_nan() const {
        std::uint32_t most = data[0];
#pragma unroll
        for (int w = 1; w != granule_size / 2; ++w) asm("max.NaN.f16x2 %0, %0, %1;" : "+r"(most) : "r"(data[w]));
        int nan;
        asm("{.reg .pred p, q; setp.nan.f16x2 p|q, %1, %1; or.pred p, p, q; selp.s32 %0, 1, 0, p;}"
            : "=r"(nan)
            : "r"(most));
        return nan != 0;
    }
#endif

    /// Converts the eight elements to floats. A NaN becomes the NaN of element_traits or, unless `KeepNan`, any NaN.
    template <bool KeepNan = true>
    __device__ void to_floats(float (&x)[granule_size]) const {
#if defined(__CUDA_ARCH__)
        if constexpr (std::is_same_v<T, half>) {
            // One instruction for each half, in place of eleven. It changes a NaN's bits: a granule with a NaN takes
            // the loop below.
#pragma unroll
            for (int i = 0; i != granule_size; ++i) asm("cvt.f32.f16 %0, %1;" : "=f"(x[i]) : "h"(at(i).bits));
            bool done = true;
            if constexpr (KeepNan) done = !has_nan();
            if (done) return;
        }
#endif
#pragma unroll
        for (int i = 0; i != granule_size; ++i) x[i] = element_traits<T>::to_float(at(i));
    }

    /// Makes a granule of the elements nearest to the eight floats `x`.
    __device__ static raw_granule from_floats(const float (&x)[granule_size]) {
#if defined(__CUDA_ARCH__)
        if constexpr (std::is_same_v<T, half> || std::is_same_v<T, bfloat16>) {
            // One instruction for two elements, not 18. It changes a NaN's bits: granules with NaN take the loop below.
            raw_granule r;
            bool nan = false;
#pragma unroll
            for (int w = 0; w != granule_size / 2; ++w) {
                const float low = x[2 * w];
                const float high = x[2 * w + 1];
                if constexpr (std::is_same_v<T, half>) {
                    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r.data[w]) : "f"(high), "f"(low));
                } else {
                    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r.data[w]) : "f"(high), "f"(low));
                }
                nan |= low != low || high != high;
            }
            if (!nan) return r;
        }
#endif
        T elements[granule_size];
#pragma unroll
        for (int i = 0; i != granule_size; ++i) elements[i] = element_traits<T>::from_float(x[i]);
        return of(elements);
    }
};

/// A granule of elements as floats.
struct float_granule {
    float x[granule_size];

    /// Copies the eight floats, also a NaN's bits. `KeepNan` has no effect: callers may also have a raw_granule.
    template <bool KeepNan = true>
    __device__ void to_floats(float (&to)[granule_size]) const {
#pragma unroll
        for (int i = 0; i != granule_size; ++i) to[i] = x[i];
    }
};

/// The largest magnitude of eight floats; NaN if a float is NaN.
__device__ inline float largest_magnitude(const float (&x)[granule_size]) {
    float most = 0;
#pragma unroll
    for (int i = 0; i != granule_size; ++i) {
#if defined(__CUDA_ARCH__)
        // One instruction on magnitudes, in place of two on integers.
        asm("{.reg .f32 m; abs.f32 m, %1; max.NaN.f32 %0, %0, m;}" : "+f"(most) : "f"(x[i]));
#else
        const float magnitude = bits_float(float_bits(x[i]) & 0x7fffffffu);
        if (float_bits(magnitude) > float_bits(most)) most = magnitude;
#endif
    }
    return most;
}

/// Multiplies each of eight floats by `factor`. A product of zero is +0.
__device__ inline void multiply(float (&x)[granule_size], float factor) {
#pragma unroll
    for (int i = 0; i != granule_size; ++i) x[i] = product(x[i], factor);
}

/// Divides each of eight floats by `divisor`, correctly rounded, a zero's sign included. No compiler fuses a quotient
/// with a later addition. `by` must be the inverse of `divisor`.
__device__ inline void divide(float (&x)[granule_size], float divisor, const inverse& by) {
    if (by.high != 0 && by.low == 0) {
#pragma unroll
        for (int i = 0; i != granule_size; ++i) x[i] = rounded_product(x[i], by.high);
        return;
    }
    bool divides = by.high == 0;
#pragma unroll
    for (int i = 0; i != granule_size; ++i) divides = divides || is_tiny(x[i]);
    if (divides) {
#pragma unroll
        for (int i = 0; i != granule_size; ++i) x[i] = quotient(x[i], divisor);
    } else {
#pragma unroll
        for (int i = 0; i != granule_size; ++i) x[i] = fused(x[i], by.high, rounded_product(x[i], by.low));
    }
}

/// Loads the first `valid` elements (0 to 8) of a granule; the others are zeros.
template <class T>
__device__ raw_granule<T> load_part_granule(const T* from, int valid) {
    T x[granule_size];
#pragma unroll
    for (int i = 0; i != granule_size; ++i) {
        x[i] = T{};
        if (i < valid) x[i] = from[i];
    }
    return raw_granule<T>::of(x);
}

template <class T>
__device__ void store_part_granule(T* to, const raw_granule<T>& r, int valid) {
#pragma unroll
    for (int i = 0; i != granule_size; ++i) {
        if (i < valid) to[i] = r.at(i);
    }
}

/// Loads eight 16-bit elements from any even address, by aligned 32-bit words. If the address is no multiple of 4, the
/// first and the last element are loaded by themselves.
template <class T>
__device__ raw_granule<T> load_unaligned_granule(const T* from) {
    const auto* const halves = reinterpret_cast<const std::uint16_t*>(from);
    const bool odd = reinterpret_cast<std::uintptr_t>(from) % 4 != 0;
    const auto* const words = reinterpret_cast<const std::uint32_t*>(halves + (odd ? 1 : 0));
    const std::uint32_t first = words[0];
    const std::uint32_t second = words[1];
    const std::uint32_t third = words[2];
    const std::uint32_t before = odd ? halves[0] : 0u;
    const std::uint32_t last = odd ? halves[granule_size - 1] : words[3];
    const unsigned left = odd ? 16 : 0;
    raw_granule<T> r;
    r.data[0] = funnel_shift(before << 16, first, left);
    r.data[1] = funnel_shift(first, second, left);
    r.data[2] = funnel_shift(second, third, left);
    r.data[3] = funnel_shift(third, last, left);
    return r;
}

template <class T>
__device__ void store_unaligned_granule(T* to, const raw_granule<T>& r) {
    auto* const halves = reinterpret_cast<std::uint16_t*>(to);
    const bool odd = reinterpret_cast<std::uintptr_t>(to) % 4 != 0;
    auto* const words = reinterpret_cast<std::uint32_t*>(halves + (odd ? 1 : 0));
#pragma unroll
    for (int w = 0; w != 3; ++w) words[w] = odd ? funnel_shift(r.data[w], r.data[w + 1], 16) : r.data[w];
    if (odd) {
        halves[0] = static_cast<std::uint16_t>(r.data[0]);
        halves[granule_size - 1] = static_cast<std::uint16_t>(r.data[3] >> 16);
    } else {
        words[3] = r.data[3];
    }
}

/// Loads a whole granule. `aligned`: `from` is on a 16-byte boundary, which allows 16-byte loads.
template <class T>
__device__ raw_granule<T> load_whole_granule(const T* from, bool aligned) {
    if constexpr (raw_granule<T>::wide) {
        if (aligned) {
            raw_granule<T> r;
            load_words<16 * raw_granule<T>::accesses, false>(from, r.data);
            return r;
        }
    }
    if constexpr (raw_granule<T>::in_halves) {
        return load_unaligned_granule(from);
    } else {
        return load_part_granule(from, granule_size);
    }
}

/// Stores a whole granule. `aligned`: `to` is on a 16-byte boundary. `Whole` is as for `store_words`.
template <bool Whole = false, class T>
__device__ void store_whole_granule(T* to, const raw_granule<T>& r, bool aligned) {
    if constexpr (raw_granule<T>::wide) {
        if (aligned) return store_words<16 * raw_granule<T>::accesses, Whole>(to, r.data);
    }
    if constexpr (raw_granule<T>::in_halves) {
        store_unaligned_granule(to, r);
    } else {
        store_part_granule(to, r, granule_size);
    }
}

/// Stores this thread's N successive whole granules from `to` on. The granules of the next thread must follow directly.
/// `aligned`, equal for all threads of a warp: all granules begin on 16-byte boundaries. Then threads exchange pieces
/// of 16 bytes, so that each store instruction of a warp writes bytes without gaps. With gaps, the L2 cache would take
/// each sector of 32 bytes twice. Decoding int4 to fp32 then had .49 of a copy's speed on an H100, in place of .91. All
/// threads of a warp must call this together. `Whole` is as for `store_words`.
template <bool Whole, std::size_t N, class T>
__device__ void store_whole_granules(T* to, const raw_granule<T> (&r)[N], bool aligned) {
    constexpr std::size_t pieces_of_lane = N * static_cast<std::size_t>(raw_granule<T>::accesses);
    constexpr bool trades = pieces_of_lane <= 32 && (pieces_of_lane & (pieces_of_lane - 1)) == 0;
    if constexpr (raw_granule<T>::wide && trades && pieces_of_lane > 1) {
        if (aligned) {
            uint4 pieces[pieces_of_lane];
#pragma unroll
            for (std::size_t c = 0; c != pieces_of_lane; ++c) {
                const auto* const words = r[c / raw_granule<T>::accesses].data + c % raw_granule<T>::accesses * 4;
                pieces[c] = uint4{words[0], words[1], words[2], words[3]};
            }
            transpose_among_lanes(pieces);
            const std::size_t lane = threadIdx.x % pieces_of_lane;
            uint4* const of_group = reinterpret_cast<uint4*>(to) - lane * pieces_of_lane;
#pragma unroll
            for (std::size_t c = 0; c != pieces_of_lane; ++c) of_group[c * pieces_of_lane + lane] = pieces[c];
            return;
        }
    }
#pragma unroll
    for (std::size_t n = 0; n != N; ++n) store_whole_granule<Whole>(to + n * granule_size, r[n], aligned);
}

/// Sets floats that are not finite to 0. If all are finite, the usual case, this costs one multiply-add for each.
__device__ inline void drop_non_finite(float (&x)[granule_size]) {
    float zero = 0.0f;
#pragma unroll
    for (int i = 0; i != granule_size; ++i) zero += 0.0f * x[i];
    if (zero == 0.0f) return;
#pragma unroll
    for (int i = 0; i != granule_size; ++i) x[i] = finite_or_zero(x[i]);
}

}  // namespace zeropp::detail
