#pragma once
/// \file
/// Encodes 16-bit elements by integer quantizers of 4 and 8 bits in AVX-512, without storing floats in between. Bits
/// equal the generic loops'.

#include <zeropp/codec/host/avx512.hpp>
#include <zeropp/codec/host/blocks.hpp>
#include <zeropp/codec/host/target.hpp>
#include <zeropp/core/element.hpp>
#include <zeropp/core/math.hpp>
#include <zeropp/layout/wire_layout.hpp>
#include <zeropp/quantizer/quantizer.hpp>

#include <cstddef>
#include <cstring>
#include <type_traits>
#include <utility>

namespace zeropp::detail {
/// Number of blocks searched for extremes together, so that none waits for another's results.
inline constexpr std::size_t blocks_together = 8;

/// True for `encode_in_vectors` of elements T by Q.
template <quantizer Q, class T>
constexpr bool encodes_in_vectors() {
    constexpr int unit = Q::code_bits == 8 ? 64 : Q::code_bits == 4 ? 128 : 0;
    if constexpr (unit != 0 && integer_quantizer<Q> && !refitting_quantizer<Q> && !stochastic_quantizer<Q> &&
                  !rotating_quantizer<Q>) {
        // Values above `highest_code` are clamped only if it is the largest integer of `code_bits` bits.
        constexpr bool bounded = !Q::reaches_above || Q::highest_code == (1 << (Q::code_bits - 1)) - 1;
        return (std::is_same_v<T, bfloat16> || std::is_same_v<T, half>) && bounded && has_wide_targets &&
               Q::block_size % unit == 0 && Q::block_size <= 256;
    } else {
        return false;
    }
}
}  // namespace zeropp::detail

#if ZEROPP_DETAIL_HAS_WIDE_TARGETS

namespace zeropp::detail {
namespace avx512 {

using unsigned_lanes [[gnu::vector_size(64)]] = unsigned;
using codes64 [[gnu::vector_size(64)]] = signed char;

/// The integers nearest to x * factor, ties to even. Requires magnitudes below 2^31.
[[gnu::always_inline]] ZEROPP_DETAIL_AVX512 inline ints nearest(floats x, float factor) {
#if defined(__clang__)
    return __builtin_ia32_cvtps2dq512_mask(x * factor, ints{}, 0xffff, 4);
#else
    return __builtin_ia32_cvtps2dq512_mask(x * factor, ints{}, -1, 4);
#endif
}

/// The 16-bit element in the lower, or upper, half of each 32-bit lane, moved to the upper half.
[[gnu::always_inline]] ZEROPP_DETAIL_AVX512 inline floats even_elements(ints two) {
    return reinterpret_cast<floats>(two << 16);
}
[[gnu::always_inline]] ZEROPP_DETAIL_AVX512 inline floats odd_elements(ints two) {
    return reinterpret_cast<floats>(two & -0x10000);
}

/// Four vectors of integers as bytes, with saturation. Each 16 bytes have four integers of a, then of b, c and d.
[[gnu::always_inline]] ZEROPP_DETAIL_AVX512 inline codes64 packed(ints a, ints b, ints c, ints d) {
#if defined(__clang__)
    return reinterpret_cast<codes64>(
        __builtin_ia32_packsswb512(__builtin_ia32_packssdw512(a, b), __builtin_ia32_packssdw512(c, d)));
#else
    using chars [[gnu::vector_size(64)]] = char;
    const shorts first = __builtin_ia32_packssdw512_mask(a, b, shorts{}, ~0u);
    const shorts second = __builtin_ia32_packssdw512_mask(c, d, shorts{}, ~0u);
    return reinterpret_cast<codes64>(__builtin_ia32_packsswb512_mask(first, second, chars{}, ~0ull));
#endif
}

/// Codes of elements T. `nearest_codes` makes bytes of the integers nearest to 64 elements times `factor`, in some
/// order. sorted(codes) restores the elements' order; sorted(a, b) also makes 4-bit codes of 128 bytes.
template <class T>
struct element_codes;

template <>
struct element_codes<bfloat16> {
    /// Each 16 bytes have 8 of the first 32 elements, then 8 of the others. In each 8 bytes, even indices come before
    /// odd ones.
    [[gnu::always_inline]] ZEROPP_DETAIL_AVX512 static codes64 nearest_codes(const bfloat16* x, float factor) {
        ints first;
        ints second;
        std::memcpy(&first, x, sizeof first);
        std::memcpy(&second, x + 2 * lanes, sizeof second);
        return packed(nearest(even_elements(first), factor), nearest(odd_elements(first), factor),
                      nearest(even_elements(second), factor), nearest(odd_elements(second), factor));
    }

    [[gnu::always_inline]] ZEROPP_DETAIL_AVX512 static codes64 sorted(codes64 mixed) {
        return __builtin_shufflevector(mixed, mixed, 0, 4, 1, 5, 2, 6, 3, 7, 16, 20, 17, 21, 18, 22, 19, 23, 32, 36, 33,
                                       37, 34, 38, 35, 39, 48, 52, 49, 53, 50, 54, 51, 55, 8, 12, 9, 13, 10, 14, 11, 15,
                                       24, 28, 25, 29, 26, 30, 27, 31, 40, 44, 41, 45, 42, 46, 43, 47, 56, 60, 57, 61,
                                       58, 62, 59, 63);
    }

    [[gnu::always_inline]] ZEROPP_DETAIL_AVX512 static ints sorted(codes64 a, codes64 b) {
        return __builtin_shufflevector(pairs(a), pairs(b), 0, 4, 8, 12, 2, 6, 10, 14, 16, 20, 24, 28, 18, 22, 26, 30);
    }

private:
    /// Packs the 4-bit codes in each 8 bytes into the lower 4.
    [[gnu::always_inline]] ZEROPP_DETAIL_AVX512 static ints pairs(codes64 codes) {
        using longs [[gnu::vector_size(64)]] = long long;
        const longs eight = reinterpret_cast<longs>(codes);
        return reinterpret_cast<ints>((eight & 0x0f0f0f0f) | (eight >> 28 & 0xf0f0f0f0));
    }
};

template <>
struct element_codes<half> {
    /// 64 bytes of codes, not in order. Each 4 bytes are of 4 successive elements. Each 16 bytes have 4 codes from each
    /// of the four groups of 16 elements.
    [[gnu::always_inline]] ZEROPP_DETAIL_AVX512 static codes64 nearest_codes(const half* x, float factor) {
        return packed(nearest(loaded_halves(x), factor), nearest(loaded_halves(x + lanes), factor),
                      nearest(loaded_halves(x + 2 * lanes), factor), nearest(loaded_halves(x + 3 * lanes), factor));
    }

    [[gnu::always_inline]] ZEROPP_DETAIL_AVX512 static ints sorted(codes64 mixed) {
        const ints fours = reinterpret_cast<ints>(mixed);
        return __builtin_shufflevector(fours, fours, 0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    }

    [[gnu::always_inline]] ZEROPP_DETAIL_AVX512 static codes64 sorted(codes64 a, codes64 b) {
        const codes64 both = reinterpret_cast<codes64>(pairs(a) | pairs(b) << 8);
        return __builtin_shufflevector(both, both, 0, 2, 16, 18, 32, 34, 48, 50, 4, 6, 20, 22, 36, 38, 52, 54, 8, 10,
                                       24, 26, 40, 42, 56, 58, 12, 14, 28, 30, 44, 46, 60, 62, 1, 3, 17, 19, 33, 35, 49,
                                       51, 5, 7, 21, 23, 37, 39, 53, 55, 9, 11, 25, 27, 41, 43, 57, 59, 13, 15, 29, 31,
                                       45, 47, 61, 63);
    }

private:
    [[gnu::always_inline]] ZEROPP_DETAIL_AVX512 static floats loaded_halves(const half* x) {
        half_shorts halves;
        std::memcpy(&halves, x, sizeof halves);
        return floats_of(halves);
    }
    /// Packs the 4-bit codes in each 2 bytes into the lower one, and clears the upper one.
    [[gnu::always_inline]] ZEROPP_DETAIL_AVX512 static ints pairs(codes64 codes) {
        const ints four = reinterpret_cast<ints>(codes);
        return (four & 0x000f000f) | (four >> 4 & 0x00f000f0);
    }
};

/// codes <- the integers nearest to x[i] * factor, as two's complement of `Bits` bits, for n elements. Requires
/// integers not below the lowest code and, unless `Bounds`, not above the highest. n must be a multiple of 64, or of
/// 128 for 4 bits.
template <int Bits, bool Bounds, class T>
ZEROPP_DETAIL_AVX512 void encode_integers(const T* x, std::size_t n, float factor, std::byte* codes) {
    static_assert(Bits == 8 || Bits == 4);
    using codes_type = element_codes<T>;
    if constexpr (Bits == 8) {
        for (std::size_t i = 0; i != n; i += 64) {
            const auto sorted = codes_type::sorted(codes_type::nearest_codes(x + i, factor));
            std::memcpy(codes + i, &sorted, sizeof sorted);
        }
    } else {
        const codes64 highest = static_cast<signed char>(7) - codes64{};
        for (std::size_t i = 0; i != n; i += 128) {
            codes64 a = codes_type::nearest_codes(x + i, factor);
            codes64 b = codes_type::nearest_codes(x + i + 64, factor);
            if constexpr (Bounds) {
                a = a > highest ? highest : a;
                b = b > highest ? highest : b;
            }
            const auto sorted = codes_type::sorted(a, b);
            std::memcpy(codes + i / 2, &sorted, sizeof sorted);
        }
    }
}

/// The larger of each two neighbouring groups of `Lanes` lanes: of a, then of b.
template <int Lanes, int... I>
[[gnu::always_inline]] ZEROPP_DETAIL_AVX512 inline ints folded(ints a, ints b, std::integer_sequence<int, I...>) {
    const ints lower = __builtin_shufflevector(a, b, (I / Lanes * 2 * Lanes + I % Lanes)...);
    const ints upper = __builtin_shufflevector(a, b, (I / Lanes * 2 * Lanes + I % Lanes + Lanes)...);
    return lower > upper ? lower : upper;
}

/// The elements of a block that are farthest above and below zero. Inf and NaN are farthest; a NaN may get other bits.
/// If a side has no element, it gets another one of the block.
struct extremes {
    float above;
    float below;
};

/// of_blocks[b] <- the extremes of block b in x. Requires `block_size` to be a multiple of 32.
template <class T>
ZEROPP_DETAIL_AVX512 void find_extremes(const T* x, std::size_t block_size, extremes (&of_blocks)[blocks_together]) {
    // Bits order like magnitudes: above zero as signed integers, below zero as unsigned ones, or signed ones once the
    // sign bit is flipped.
    constexpr int sign = -0x7fffffff - 1;
    constexpr auto each_lane = std::make_integer_sequence<int, 16>();
    ints found[blocks_together];
    ZEROPP_DETAIL_UNROLL(8)
    for (std::size_t b = 0; b != blocks_together; ++b) {
        shorts above;
        std::memcpy(&above, x + b * block_size, sizeof above);
        auto below = reinterpret_cast<unsigned_shorts>(above);
        for (std::size_t i = 2 * lanes; i != block_size; i += 2 * lanes) {
            shorts some;
            std::memcpy(&some, x + b * block_size + i, sizeof some);
            // Loaded once, not for each use: a core reads at most 64 bytes in a cycle.
            __asm__("" : "+v"(some));
            const auto bits = reinterpret_cast<unsigned_shorts>(some);
            above = some > above ? some : above;
            below = bits > below ? bits : below;
        }
        const ints odd = reinterpret_cast<ints>(odd_elements(reinterpret_cast<ints>(above)));
        const ints even = reinterpret_cast<ints>(even_elements(reinterpret_cast<ints>(above)));
        const auto odd_below = reinterpret_cast<unsigned_lanes>(odd_elements(reinterpret_cast<ints>(below)));
        const auto even_below = reinterpret_cast<unsigned_lanes>(even_elements(reinterpret_cast<ints>(below)));
        const unsigned_lanes all_below = even_below > odd_below ? even_below : odd_below;
        found[b] = folded<8>(even > odd ? even : odd, reinterpret_cast<ints>(all_below) ^ sign, each_lane);
    }
    ZEROPP_DETAIL_UNROLL(4)
    for (std::size_t b = 0; b != 4; ++b) found[b] = folded<4>(found[2 * b], found[2 * b + 1], each_lane);
    ZEROPP_DETAIL_UNROLL(2)
    for (std::size_t b = 0; b != 2; ++b) found[b] = folded<2>(found[2 * b], found[2 * b + 1], each_lane);
    const ints signs_of_below = {0, sign, 0, sign, 0, sign, 0, sign, 0, sign, 0, sign, 0, sign, 0, sign};
    const ints all = folded<1>(found[0], found[1], each_lane) ^ signs_of_below;
    static_assert(sizeof all == sizeof of_blocks);
    if constexpr (std::is_same_v<T, half>) {
        const floats values = floats_of(__builtin_convertvector(all >> 16, half_shorts));
        std::memcpy(of_blocks, &values, sizeof values);
    } else {
        std::memcpy(of_blocks, &all, sizeof all);
    }
}

}  // namespace avx512

/// Encodes n elements of a section from element `begin` on, which begins a block. n is a multiple of `blocks_together`
/// blocks.
template <quantizer Q, class T>
ZEROPP_DETAIL_AVX512 void encode_in_vectors(const Q& q, const T* section, std::size_t begin, std::size_t n,
                                            const coded<std::byte>& to) {
    constexpr auto block_size = static_cast<std::size_t>(Q::block_size);
    const T* x = section + begin;
    for (const std::size_t end = begin + n; begin != end; begin += blocks_together * block_size) {
        avx512::extremes found[blocks_together];
        avx512::find_extremes(x, block_size, found);
        typename Q::params params[blocks_together];
        for (std::size_t b = 0; b != blocks_together; ++b) {
            typename Q::stats stats;
            stats.add(found[b].above);
            stats.add(found[b].below);
            params[b] = q.fit(stats);
        }
        std::memcpy(to.params + begin / block_size * params_bytes<Q>, params, blocks_together * params_bytes<Q>);
        for (std::size_t b = 0; b != blocks_together; ++b, x += block_size) {
            const float step = q.multiplier(params[b]);
            std::byte* const codes = to.codes + code_bytes<Q>(begin + b * block_size);
            if (is_finite(step)) {
                const float factor = step != 0 ? quotient(1.0f, step) : 0.0f;
                avx512::encode_integers<Q::code_bits, Q::reaches_above>(x, block_size, factor, codes);
            } else {
                std::memset(codes, 0, code_bytes<Q>(block_size));
            }
        }
    }
}

}  // namespace zeropp::detail

#endif
