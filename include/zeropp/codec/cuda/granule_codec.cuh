#pragma once
/// \file
/// The codes of eight elements, and the elements that codes stand for: the quantizer's arithmetic, element by element,
/// and for integers ways to the same bits that take fewer instructions.

#include <zeropp/codec/cuda/codes.cuh>
#include <zeropp/codec/cuda/granule.cuh>
#include <zeropp/core/element.hpp>
#include <zeropp/core/math.hpp>
#include <zeropp/quantizer/abilities.hpp>
#include <zeropp/quantizer/scale.hpp>

#include <cstddef>
#include <cstdint>

namespace zeropp::detail {

/// Quantizers whose blocks were fitted to what is encoded, rounded to the nearest code.
template <class Q>
concept encodes_integers = integer_quantizer<Q> && !searching_quantizer<Q> && !dithering_quantizer<Q>;

/// a * b + c, rounded once.
__device__ inline float fused(float a, float b, float c) {
#if defined(__CUDA_ARCH__)
    return __fmaf_rn(a, b, c);
#else
    return __builtin_fmaf(a, b, c);
#endif
}

/// The floats of the two halves in a word.
__device__ inline void halves_of(std::uint32_t word, float& low, float& high) {
#if defined(__CUDA_ARCH__)
    asm("{.reg .b16 l, h; mov.b32 {l, h}, %2; cvt.f32.f16 %0, l; cvt.f32.f16 %1, h;}"
        : "=f"(low), "=f"(high)
        : "r"(word));
#else
    low = element_traits<half>::to_float(__builtin_bit_cast(half, static_cast<std::uint16_t>(word)));
    high = element_traits<half>::to_float(__builtin_bit_cast(half, static_cast<std::uint16_t>(word >> 16)));
#endif
}

/// Bytes of two words, the lower four bits of the selector first.
__device__ inline std::uint32_t selected_bytes(std::uint32_t low, std::uint32_t high, std::uint32_t selector) {
#if defined(__CUDA_ARCH__)
    return __byte_perm(low, high, selector);
#else
    const std::uint64_t bytes = low | static_cast<std::uint64_t>(high) << 32;
    std::uint32_t word = 0;
    for (int i = 0; i != 4; ++i) {
        word |= static_cast<std::uint32_t>(bytes >> (selector >> (4 * i) & 7u) * 8 & 0xffu) << (8 * i);
    }
    return word;
#endif
}

/// What decodes the integers of a block: with an offset that makes them positive they are subnormal halves, and one
/// instruction turns those into floats. A fused multiply-add then takes off the offset, exactly `product(code, m)`:
/// both its factors and the addend are exact.
template <int Bits>
struct integer_decoder {
    static constexpr float offset = static_cast<float>(1 << (Bits - 1));
    static constexpr float most_multiplier = 0x1p104f;

    static_assert(Bits <= 8);

    /// A subnormal half is 2^-24 times the integer in its low bits, and 2^-20 times one that is four bits higher.
    float low;
    float shifted;
    float origin;

    /// Whether that multiplier can be taken: all but those next to the largest float, and NaN.
    __device__ static bool takes(float multiplier) { return __builtin_fabsf(multiplier) < most_multiplier; }

    __device__ explicit integer_decoder(float multiplier)
        : low(multiplier * 0x1p24f), shifted(multiplier * 0x1p20f), origin(multiplier * -offset) {}

    /// use(i, the i-th of the eight elements).
    template <class Use>
    __device__ void decode(const packed_codes<Bits>& codes, Use use) const {
        if constexpr (Bits == 4) {
            const std::uint32_t word = codes.data[0] ^ 0x88888888u;
            const std::uint32_t later = word >> 8;
            pair(word & 0x000f000fu, low, 0, 4, use);
            pair(word & 0x00f000f0u, shifted, 1, 5, use);
            pair(later & 0x000f000fu, low, 2, 6, use);
            pair(later & 0x00f000f0u, shifted, 3, 7, use);
        } else if constexpr (Bits == 8) {
#pragma unroll
            for (int w = 0; w != 2; ++w) {
                const std::uint32_t word = codes.data[w] ^ 0x80808080u;
                pair(selected_bytes(word, 0, 0x4140), low, 4 * w, 4 * w + 1, use);
                pair(selected_bytes(word, 0, 0x4342), low, 4 * w + 2, 4 * w + 3, use);
            }
        } else {
            constexpr std::uint32_t sign = 1u << (Bits - 1);
#pragma unroll
            for (int i = 0; i != granule_size; i += 2) {
                pair((codes.at(i) ^ sign) | (codes.at(i + 1) ^ sign) << 16, low, i, i + 1, use);
            }
        }
    }

private:
    template <class Use>
    __device__ void pair(std::uint32_t halves, float multiplier, int i, int j, Use use) const {
        float a;
        float b;
        halves_of(halves, a, b);
        use(i, fused(a, multiplier, origin));
        use(j, fused(b, multiplier, origin));
    }
};

/// The codes of eight elements of a block that its parameters were fitted to: no element lies outside its codes but
/// above, so that only those are bounded, and only where there may be some.
template <encodes_integers Q>
__device__ packed_codes<Q::code_bits> integer_codes(const float (&x)[granule_size], float multiplier) {
    constexpr int bits = Q::code_bits;
    // As `whole_code` does; four-bit codes with the offset that makes them positive.
    constexpr float middle = 12582912.0f + (bits == 4 ? 8.0f : 0.0f);
    const float inverse = quotient(1.0f, multiplier != 0 ? multiplier : 1.0f);
    const float steps = multiplier != 0 ? inverse : 0.0f;
    std::uint32_t rounded[granule_size];
#pragma unroll
    for (int i = 0; i != granule_size; ++i) {
#if defined(__CUDA_ARCH__)
        rounded[i] = float_bits(__fadd_rn(__fmul_rn(x[i], steps), middle));
#else
        rounded[i] = float_bits(product(x[i], steps) + middle);
#endif
        if constexpr (Q::reaches_above) {
            constexpr auto most = static_cast<std::int32_t>(float_bits(middle)) + Q::highest_code;
            const auto code = static_cast<std::int32_t>(rounded[i]);
            rounded[i] = static_cast<std::uint32_t>(code < most ? code : most);
        }
    }
    packed_codes<bits> p;
    const std::uint32_t finite = is_finite(multiplier) ? ~0u : 0u;
    if constexpr (bits == 4) {
        constexpr std::uint32_t ones = 0x11111111u;
        std::uint32_t sum = 0;
#pragma unroll
        for (int i = granule_size - 1; i >= 0; --i) sum = sum * 16 + rounded[i];
        p.data[0] = ((sum - float_bits(12582912.0f) * ones) ^ 0x88888888u) & finite;
    } else if constexpr (bits == 8) {
#pragma unroll
        for (int w = 0; w != 2; ++w) {
            const std::uint32_t low = selected_bytes(rounded[4 * w], rounded[4 * w + 1], 0x0040);
            const std::uint32_t high = selected_bytes(rounded[4 * w + 2], rounded[4 * w + 3], 0x0040);
            p.data[w] = selected_bytes(low, high, 0x5410) & finite;
        }
    } else {
        std::uint32_t codes[granule_size];
#pragma unroll
        for (int i = 0; i != granule_size; ++i) codes[i] = rounded[i] & ((1u << bits) - 1u) & finite;
        p = packed_codes<bits>::of(codes);
    }
    return p;
}

/// The codes of a granule of which the first `valid` elements exist, zero for the others. `position` is its first
/// element's in its block; `noise` gives each element its own.
template <quantizer Q, class Noise>
__device__ packed_codes<Q::code_bits> encode_granule(const Q& q, const float (&x)[granule_size],
                                                     const typename Q::params& params, std::uint32_t position,
                                                     int valid, Noise noise) {
    packed_codes<Q::code_bits> p;
    if constexpr (encodes_integers<Q>) {
        p = integer_codes<Q>(x, q.multiplier(params));
    } else {
        std::uint32_t codes[granule_size];
#pragma unroll
        for (int i = 0; i != granule_size; ++i) {
            codes[i] = encode_element(q, x[i], params, position + static_cast<std::uint32_t>(i), noise(i));
        }
        p = packed_codes<Q::code_bits>::of(codes);
    }
    p.keep(valid);
    return p;
}

/// use(i, the i-th element) of a granule.
template <quantizer Q, class Use>
__device__ void decode_granule(const Q& q, const packed_codes<Q::code_bits>& codes, const typename Q::params& params,
                               std::uint32_t position, Use use) {
#pragma unroll
    for (int i = 0; i != granule_size; ++i) {
        use(i, decode_element(q, codes.at(i), params, position + static_cast<std::uint32_t>(i)));
    }
}

}  // namespace zeropp::detail
