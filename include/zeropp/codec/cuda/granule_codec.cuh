#pragma once
/// \file
/// Encoding and decoding of granules, eight successive elements of a thread. Each element goes through the quantizer's
/// functions; integer codes take fewer instructions, with equal bits.

#include <zeropp/codec/cuda/codes.cuh>
#include <zeropp/codec/cuda/granule.cuh>
#include <zeropp/codec/cuda/instructions.cuh>
#include <zeropp/codec/cuda/tuning.hpp>
#include <zeropp/core/element.hpp>
#include <zeropp/core/math.hpp>
#include <zeropp/quantizer/block_integer.hpp>
#include <zeropp/quantizer/integer_scheme.hpp>
#include <zeropp/quantizer/quantizer.hpp>
#include <zeropp/quantizer/scale.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

namespace zeropp::detail {

/// Merges the n-th stats of each `Lanes` neighbouring threads, for each n < N; all of these threads get the result.
/// `Lanes` is a power of two up to 32. All threads of a warp must call this together.
template <int Lanes, std::size_t N, class Stats>
__device__ void merge_in_warp(Stats (&stats)[N]) {
    constexpr std::size_t words = sizeof(Stats) / 4;
#pragma unroll
    for (int distance = 1; distance < Lanes; distance *= 2) {
#pragma unroll
        for (std::size_t n = 0; n != N; ++n) {
            std::uint32_t sent[words];
            memcpy(sent, &stats[n], sizeof(Stats));
#pragma unroll
            for (std::size_t w = 0; w != words; ++w) sent[w] = __shfl_xor_sync(0xffffffffu, sent[w], distance);
            Stats other;
            memcpy(&other, sent, sizeof(Stats));
            stats[n].merge(other);
        }
    }
}

/// Merges the n-th stats of each team of `Lanes` neighbouring threads, for each n < N; all threads of the team get the
/// result. `Lanes` is a power of two up to `kernel_threads`. All threads of a warp must call this together; if `Lanes`
/// is above 32, all threads of the thread block.
template <int Lanes, std::size_t N, class Stats>
__device__ void merge_stats(Stats (&stats)[N]) {
    static_assert(sizeof(Stats) % 4 == 0 || std::is_empty_v<Stats>, "stats travel between threads as 32-bit words");
    if constexpr (!std::is_empty_v<Stats>) {
        merge_in_warp<(Lanes < 32 ? Lanes : 32)>(stats);
        if constexpr (Lanes > 32) {
            constexpr int team_warps = Lanes / 32;
            __shared__ std::uint32_t of_warp[N][kernel_warps][sizeof(Stats) / 4];
            const int lane = lane_of_warp();
            const int warp = warp_of_block();
            __syncthreads();  // all threads have read the stats of an earlier call
            if (lane == 0) {
#pragma unroll
                for (std::size_t n = 0; n != N; ++n) memcpy(of_warp[n][warp], &stats[n], sizeof(Stats));
            }
            __syncthreads();
            const int from = warp / team_warps * team_warps + lane % team_warps;
#pragma unroll
            for (std::size_t n = 0; n != N; ++n) memcpy(&stats[n], of_warp[n][from], sizeof(Stats));
            merge_in_warp<team_warps>(stats);
        }
    }
}

/// Rounding noise of elements [index, index + 8) of the whole tensor. `sums`: values are sums of quantized elements,
/// which need other noise. If `index` is no multiple of 8, joins the noise of two granules by shifts of 4, 2 and 1
/// elements. A register chosen at run time would be in memory.
template <stochastic_quantizer Q>
__device__ rounding_noise noise_from(const Q& q, std::size_t index, bool sums) {
    rounding_noise noise = q.noise(index / granule_size, sums);
    const auto ahead = static_cast<unsigned>(index % granule_size);
    if (ahead == 0) return noise;
    const rounding_noise next = q.noise(index / granule_size + 1, sums);
    constexpr int words = granule_size / 2;
    std::uint32_t both[2 * words];
#pragma unroll
    for (int w = 0; w != words; ++w) {
        both[w] = noise.words.word[w];
        both[words + w] = next.words.word[w];
    }
#pragma unroll
    for (int w = 0; w != 2 * words - 2; ++w) both[w] = (ahead & 4u) != 0 ? both[w + 2] : both[w];
#pragma unroll
    for (int w = 0; w != words + 1; ++w) both[w] = (ahead & 2u) != 0 ? both[w + 1] : both[w];
#pragma unroll
    for (int w = 0; w != words; ++w) {
        noise.words.word[w] = (ahead & 1u) != 0 ? both[w] >> 16 | both[w + 1] << 16 : both[w];
    }
    return noise;
}

/// Of a lane's elements of a block, those from which alone the block's stats follow. `decide`: there are such elements.
template <class Stats>
struct extremes {
    static constexpr bool decide = false;
};

template <>
struct extremes<symmetric::stats> {
    static constexpr bool decide = true;

    __device__ void add(const float (&x)[granule_size]) {
        const float most = largest_magnitude(x);
        if (float_bits(most) > float_bits(most_)) most_ = most;
    }
    template <class Use>
    __device__ void for_each(Use use) const {
        use(most_);
    }

private:
    float most_ = 0;
};

/// The positive and the negative element of largest magnitude: two instructions for two elements where a maximum of
/// three numbers is one. If all elements have one sign, both are the element of largest magnitude.
template <>
struct extremes<signed_absmax::stats> {
    static constexpr bool decide = true;

    __device__ void add(const float (&x)[granule_size]) {
#pragma unroll
        for (int i = 0; i != granule_size; ++i) {
            const std::uint32_t bits = float_bits(x[i]);
            above_ = static_cast<std::int32_t>(bits) > above_ ? static_cast<std::int32_t>(bits) : above_;
            below_ = bits > below_ ? bits : below_;
        }
    }
    template <class Use>
    __device__ void for_each(Use use) const {
        use(bits_float(static_cast<std::uint32_t>(above_)));
        use(bits_float(below_));
    }

private:
    std::int32_t above_ = std::numeric_limits<std::int32_t>::min();
    std::uint32_t below_ = 0;
};

/// A quantizer with integer codes that rounds to nearest, without random noise, and fits a block in one pass.
template <class Q>
concept encodes_integers = integer_quantizer<Q> && !refitting_quantizer<Q> && !stochastic_quantizer<Q>;

/// Adds x * factor to `a`, and y * factor to `b`; rounds each product before. A product of zero may lose its sign.
__device__ inline void add_products(float& a, float& b, float x, float y, float factor) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1000
    // Two elements for each instruction. With any flags, ptxas fuses mul.rn.f32x2 with the addition after it. It does
    // not fuse this fma with +0.
    asm("{.reg .b64 sum, x, factor, zero; mov.b64 sum, {%0, %1}; mov.b64 x, {%2, %3}; mov.b64 factor, {%4, %4};"
        "mov.b64 zero, {0f00000000, 0f00000000};"
        "fma.rn.f32x2 x, x, factor, zero; add.rn.f32x2 sum, sum, x; mov.b64 {%0, %1}, sum;}"
        : "+f"(a), "+f"(b)
        : "f"(x), "f"(y), "f"(factor));
#else
    a += rounded_product(x, factor);
    b += rounded_product(y, factor);
#endif
}

/// True if M is the type of the address of a block_integer's `multiplier`, and scales have 16 bits.
template <class M>
inline constexpr bool multiplies_by_16_bits = false;
template <int Bits, int BlockSize, class Scheme, scale_type Scale>
inline constexpr bool multiplies_by_16_bits<float (block_integer<Bits, BlockSize, Scheme, Scale>::*)(
    const scale_params<Scale>&) const noexcept> = sizeof(Scale) == 2;

/// True if every product of a code and its block's multiplier is exactly a float. A code has 8 significant bits at
/// most, and a scale of 16 bits has 11. So a fused multiply-add equals a rounded product and an addition. No product of
/// a block that block_integer has fitted overflows. A derived type with a multiplier of its own may have more bits.
template <integer_quantizer Q>
inline constexpr bool has_exact_products = requires { requires multiplies_by_16_bits<decltype(&Q::multiplier)>; };

/// Adds x * factor to `a`, and y * factor to `b`, by fused multiply-adds, which round once.
__device__ inline void add_exact_products(float& a, float& b, float x, float y, float factor) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1000
    asm("{.reg .b64 sum, x, factor; mov.b64 sum, {%0, %1}; mov.b64 x, {%2, %3}; mov.b64 factor, {%4, %4};"
        "fma.rn.f32x2 sum, x, factor, sum; mov.b64 {%0, %1}, sum;}"
        : "+f"(a), "+f"(b)
        : "f"(x), "f"(y), "f"(factor));
#else
    a = fused(x, factor, a);
    b = fused(y, factor, b);
#endif
}

/// Converts the integer codes of a warp's threads to floats on tensor cores. A code becomes the lower bits of a half's
/// mantissa, under a fixed exponent. The product of such halves with the identity matrix, minus the exponent's power of
/// two, gives each thread its integers as floats. One instruction converts four codes of each thread, in place of four
/// instructions. Exact: no factor has more than 11 significant bits.
template <int Bits>
struct integer_converter {
    static_assert(Bits >= 2 && Bits <= 8);

    /// The two halves of the identity matrix that this thread supplies, in operand B of mma.m16n8k8 (PTX ISA). They are
    /// in column lane / 4, rows 2 * (lane % 4) and 2 * (lane % 4) + 1.
    std::uint32_t identity;

    __device__ explicit integer_converter(unsigned thread)
        : identity(thread / 8 % 4 == thread % 4 ? one << (thread / 4 % 2 * 16) : 0u) {}

    /// Calls use(i, j, x, y) for four pairs of the eight codes: x is the i-th code's integer as a float, y is the
    /// j-th's. All threads of a warp must call this together.
    template <class Use>
    __device__ void convert(const packed_codes<Bits>& codes, Use use) const {
#if !defined(__CUDA_ARCH__)
        __syncwarp();
#endif
        if constexpr (Bits == 4) {
            const std::uint32_t later = codes.data[0] >> 8;
            four<0, 4>(part<0>(codes.data[0]), part<4>(codes.data[0]), 0, 4, 1, 5, use);
            four<0, 4>(part<0>(later), part<4>(later), 2, 6, 3, 7, use);
        } else if constexpr (Bits == 2) {
            // One byte, four codes, in each half of the word.
            const std::uint32_t word = selected_bytes(codes.data[0], 0, 0x4140);
            four<0, 2>(part<0>(word), part<2>(word), 0, 4, 1, 5, use);
            four<4, 6>(part<4>(word), part<6>(word), 2, 6, 3, 7, use);
        } else if constexpr (Bits == 8) {
            constexpr std::uint32_t upper = exponent<0> / 0x100 * 0x01010101u;
#pragma unroll
            for (int w = 0; w != 2; ++w) {
                const std::uint32_t word = codes.data[w] ^ 0x80808080u;
                const int i = 4 * w;
                four<0, 0>(selected_bytes(word, upper, 0x4140), selected_bytes(word, upper, 0x4342), i, i + 1, i + 2,
                           i + 3, use);
            }
        } else if constexpr (Bits == 6) {
            // Two bytes, in which two codes are whole, in each half of the word: codes 0, 1, 4, 5, then 2, 3, 6, 7.
            const std::uint32_t word = selected_bytes(codes.data[0], codes.data[1], 0x4310);
            const std::uint32_t later = selected_bytes(codes.data[0], codes.data[1], 0x5421);
            four<0, 0>(part<0>(word), part<0>(word >> 6), 0, 4, 1, 5, use);
            four<4, 4>(part<4>(later), part<4>(later >> 6), 2, 6, 3, 7, use);
        } else {
#pragma unroll
            for (int i = 0; i != granule_size; i += 4) {
                const auto two = [&](int n) { return both<0> ^ (codes.at(n) | codes.at(n + 1) << 16); };
                four<0, 0>(two(i), two(i + 2), i, i + 1, i + 2, i + 3, use);
            }
        }
    }

private:
    /// Bits of 1 as a half.
    static constexpr std::uint32_t one = 0x3c00;
    /// Bits of 2^(10 - Place) as a half. An integer added to these bits at bit `Place` adds its value to the half.
    template <int Place>
    static constexpr std::uint32_t exponent = (25u - Place) << 10;
    /// Bits of two halves of value 2^(10 - Place) + 2^(Bits - 1). The exclusive or with a two's complement integer at
    /// bit `Place` adds the integer to a half.
    template <int Place>
    static constexpr std::uint32_t both = (exponent<Place> | 1u << (Place + Bits - 1)) * 0x10001u;
    /// 2^(10 - Place) + 2^(Bits - 1): the value of a half with an integer at bit `Place` is the integer plus this
    /// float.
    template <int Place>
    static constexpr float more = static_cast<float>((1 << (10 - Place)) + (1 << (Bits - 1)));

    /// Bits of two halves, which hold the integers at bit `Place` of either 16 bits of `word`.
    template <int Place>
    __device__ static std::uint32_t part(std::uint32_t word) {
        return masked_exclusive_or(word, ((1u << Bits) - 1u) * 0x10001u << Place, both<Place>);
    }

    /// Converts the two integers in `first`, at bit `First` of each half, for use(i, j, x, y). Then converts the two in
    /// `second`, at bit `Second`, for use(k, l, x, y). All threads of a warp must call this together.
    template <int First, int Second, class Use>
    __device__ void four(std::uint32_t first, std::uint32_t second, int i, int j, int k, int l, Use use) const {
        float x[4];
#if defined(__CUDA_ARCH__)
        asm volatile(
            "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%7, %7, %8, %8};"
            : "=f"(x[0]), "=f"(x[1]), "=f"(x[2]), "=f"(x[3])
            : "r"(first), "r"(second), "r"(identity), "f"(-more<First>), "f"(-more<Second>));
#else
        for (int n = 0; n != 4; ++n) {
            const auto bits = static_cast<std::uint16_t>((n < 2 ? first : second) >> (n % 2 * 16));
            x[n] =
                element_traits<half>::to_float(__builtin_bit_cast(half, bits)) - (n < 2 ? more<First> : more<Second>);
        }
#endif
        use(i, j, x[0], x[1]);
        use(k, l, x[2], x[3]);
    }
};

/// True if the magnitude of a block's step is from 2^-60 to less than 2^100. A factor from 2^-8 to 1, a power of two,
/// may then multiply the step in place of sums, or its reciprocal in place of elements: sums and codes stay equal,
/// because these products are exact. An element that the factor would round, to a denormal, has code 0 either way.
__device__ inline bool is_ordinary(float step) {
    constexpr std::uint32_t least = float_bits(0x1p-60f);
    return (float_bits(step) & 0x7fffffffu) - least < float_bits(0x1p100f) - least;
}

/// Codes of eight elements of a block, `x` times `scale`, with a step of `multiplier`, which must be fitted to the
/// block. So no element needs a code below the lowest one. An element that needs a code above the highest one gets the
/// highest one. `scale` is 1, or a power of two down to 2^-8 if the multiplier `is_ordinary`.
template <encodes_integers Q>
__device__ packed_codes<Q::code_bits> integer_codes(const float (&x)[granule_size], float multiplier, float scale) {
    constexpr int bits = Q::code_bits;
    static_assert(bits >= 2);
    // True if two codes are bounded at a time, by the largest integer of 4 bits.
    constexpr bool in_halves = Q::reaches_above && bits == 4 && Q::highest_code == 7;
    // 1.5 * 2^23: adding it leaves the nearest integer in the mantissa's lower bits. Codes below 8 bits also get half
    // their range, which makes them positive.
    constexpr float zero = 12582912.0f;
    constexpr float middle = zero + static_cast<float>(bits < 8 ? 1 << (bits - 1) : 0);
    const float steps = reciprocal(multiplier) * scale;
    std::uint32_t rounded[granule_size];
#pragma unroll
    for (int i = 0; i != granule_size; ++i) {
        rounded[i] = float_bits(rounded_product(x[i], steps) + middle);
        if constexpr (Q::reaches_above && !in_halves) {
            constexpr auto most = static_cast<std::int32_t>(float_bits(middle)) + Q::highest_code;
            const auto code = static_cast<std::int32_t>(rounded[i]);
            rounded[i] = static_cast<std::uint32_t>(code < most ? code : most);
        }
    }
    packed_codes<bits> p;
    // Codes are zero if the step is zero, Inf or NaN.
    const std::uint32_t any = 2 * float_bits(multiplier) - 1 < 2 * infinity_bits - 1 ? ~0u : 0u;
    if constexpr (bits == 8) {
#pragma unroll
        for (int w = 0; w != 2; ++w) {
            const std::uint32_t low = selected_bytes(rounded[4 * w], rounded[4 * w + 1], 0x0040);
            const std::uint32_t high = selected_bytes(rounded[4 * w + 2], rounded[4 * w + 3], 0x0040);
            p.data[w] = selected_bytes(low, high, 0x5410) & any;
        }
    } else if constexpr (in_halves) {
        // Codes i and i + 4 are in the halves of a word. No code carries into the next one.
        std::uint32_t packed = 0;
#pragma unroll
        for (int i = granule_size / 2 - 1; i >= 0; --i) {
            const std::uint32_t two = selected_bytes(rounded[i], rounded[i + granule_size / 2], 0x5410);
            packed = (packed << bits) + lesser_halves(two, 0x000f000fu);
        }
        p.data[0] = masked_exclusive_or(packed, any, 0x88888888u & any);
    } else {
        // Sums hold eight codes each, or four of more than 4 bits. No positive code carries into the next one.
        constexpr int in_sum = bits <= 4 ? 8 : 4;
        constexpr std::uint32_t ones = (~0ull >> (64 - in_sum * bits)) / ((1u << bits) - 1u);
        std::uint32_t packed[std::size_t{granule_size / in_sum}];
#pragma unroll
        for (int w = 0; w != granule_size / in_sum; ++w) {
            std::uint32_t sum = 0;
#pragma unroll
            for (int i = in_sum - 1; i >= 0; --i) sum = (sum << bits) + rounded[w * in_sum + i];
            packed[w] = masked_exclusive_or(sum - float_bits(zero) * ones, any, (ones << (bits - 1)) & any);
        }
        p.data[0] = packed[0];
        if constexpr (bits > 4) {
            p.data[0] |= packed[1] << 4 * bits;
            p.data[1] = packed[1] >> (32 - 4 * bits);
        }
    }
    return p;
}

/// Codes of eight values, `x` times `scale`, with a block's parameters; zero from element `valid` on. `scale` is as for
/// integer_codes, or 1. `noise` is the granule's rounding_noise if Q is a `stochastic_quantizer`, otherwise nothing.
template <quantizer Q, class... Noise>
__device__ packed_codes<Q::code_bits> encode_granule(const Q& q, const float (&x)[granule_size],
                                                     const typename Q::params& params, int valid, float scale,
                                                     const Noise&... noise) {
    packed_codes<Q::code_bits> p;
    if constexpr (encodes_integers<Q>) {
        p = integer_codes<Q>(x, q.multiplier(params), scale);
    } else {
        std::uint32_t codes[granule_size];
#pragma unroll
        for (int i = 0; i != granule_size; ++i) codes[i] = q.encode(x[i], params, noise.at(i)...);
        p = packed_codes<Q::code_bits>::of(codes);
    }
    p.keep(valid);
    return p;
}

/// Calls use(i, x) for each i < 8: x is the value of the granule's i-th code.
template <quantizer Q, class Use>
__device__ void decode_granule(const Q& q, const packed_codes<Q::code_bits>& codes, const typename Q::params& params,
                               Use use) {
#pragma unroll
    for (int i = 0; i != granule_size; ++i) use(i, q.decode(codes.at(i), params));
}

}  // namespace zeropp::detail
