#pragma once
/// \file
/// 16-bit elements in AVX-512: converts floats to bfloat16, and encodes bfloat16 and half elements without storing
/// floats in between. Results have the bits of the generic loops.

#include <zeropp/codec/host/avx512.hpp>
#include <zeropp/codec/host/target.hpp>
#include <zeropp/core/element.hpp>

#include <cstddef>
#include <cstring>
#include <type_traits>

namespace zeropp::detail {
/// Number of blocks in which AVX-512 code searches for extreme elements together, so that latencies overlap.
inline constexpr std::size_t blocks_together = 8;
}  // namespace zeropp::detail

#if ZEROPP_DETAIL_HAS_WIDE_TARGETS

namespace zeropp::detail::avx512 {

using unsigned_shorts [[gnu::vector_size(64)]] = unsigned short;
using unsigned_lanes [[gnu::vector_size(64)]] = unsigned;
using codes64 [[gnu::vector_size(64)]] = signed char;

/// to[i] <- from[i] as bfloat16, for n floats. Returns false, with `to` unspecified, if a float is Inf or NaN. Requires
/// n to be a multiple of 32.
ZEROPP_DETAIL_AVX512 inline bool bfloat16s_of_floats(const float* from, std::size_t n, bfloat16* to) {
    unsigned_shorts largest = {};
    for (std::size_t i = 0; i != n; i += 2 * lanes) {
        unsigned_shorts first;
        unsigned_shorts second;
        std::memcpy(&first, from + i, sizeof first);
        std::memcpy(&second, from + i + lanes, sizeof second);
        // Keeps both vectors in registers. Otherwise the compiler would load each again for every use.
        __asm__("" : "+v"(first), "+v"(second));
        const unsigned_shorts lower =
            __builtin_shufflevector(first, second, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30, 32, 34,
                                    36, 38, 40, 42, 44, 46, 48, 50, 52, 54, 56, 58, 60, 62);
        const unsigned_shorts upper =
            __builtin_shufflevector(first, second, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31, 33, 35,
                                    37, 39, 41, 43, 45, 47, 49, 51, 53, 55, 57, 59, 61, 63);
        // Rounds to nearest, ties to even: a tie goes up if the lowest bit of the upper half is set.
        const unsigned_shorts stays = 0x8000 - (upper & 1);
        const unsigned_shorts rounded = lower > stays ? upper + 1 : upper;
        std::memcpy(to + i, &rounded, sizeof rounded);
        const unsigned_shorts magnitude = upper << 1;
        largest = magnitude > largest ? magnitude : largest;
    }
    constexpr auto not_less = 5;
    const auto infinite = reinterpret_cast<shorts>(unsigned_shorts{} + static_cast<unsigned short>(2 * 0x7f80));
    return __builtin_ia32_ucmpw512_mask(reinterpret_cast<shorts>(largest), infinite, not_less, ~0u) == 0;
}

/// The integers nearest to x * factor, ties to even. Requires magnitudes below 2^31.
[[gnu::always_inline]] ZEROPP_DETAIL_AVX512 inline ints nearest(floats x, float factor) {
#if defined(__clang__)
    return __builtin_ia32_cvtps2dq512_mask(x * factor, ints{}, 0xffff, 4);
#else
    return __builtin_ia32_cvtps2dq512_mask(x * factor, ints{}, -1, 4);
#endif
}

/// The 16-bit element in the lower half of each 32-bit lane, moved to the upper half, where bfloat16 is a float.
[[gnu::always_inline]] ZEROPP_DETAIL_AVX512 inline floats even_elements(ints two) {
    return reinterpret_cast<floats>(two << 16);
}
/// The 16-bit element in the upper half of each 32-bit lane, with the lower half cleared: bfloat16 is then a float.
[[gnu::always_inline]] ZEROPP_DETAIL_AVX512 inline floats odd_elements(ints two) {
    return reinterpret_cast<floats>(two & -0x10000);
}

/// The integers of four vectors as bytes, with saturation. Each 16 bytes have four integers of a, then of b, c and d.
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

/// Conversion of 16-bit elements T to integer codes. `nearest_codes` makes bytes of the integers nearest to 64 elements
/// times `factor`, in mixed order. `sorted` restores the elements' order: of 64 bytes, or of 128 bytes that become
/// 4-bit codes.
template <class T>
struct codes_of;

template <>
struct codes_of<bfloat16> {
    /// Codes of 64 elements. Each 16 bytes have 8 of the first 32 elements, then 8 of the last 32. In each 8 bytes,
    /// elements of even index come before elements of odd index.
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
    /// Packs each 8 bytes, with a 4-bit code in each byte, into their lower 4 bytes, and clears the upper 4.
    [[gnu::always_inline]] ZEROPP_DETAIL_AVX512 static ints pairs(codes64 codes) {
        using longs [[gnu::vector_size(64)]] = long long;
        const longs eight = reinterpret_cast<longs>(codes);
        return reinterpret_cast<ints>((eight & 0x0f0f0f0f) | (eight >> 28 & 0xf0f0f0f0));
    }
};

template <>
struct codes_of<half> {
    /// Codes of 64 elements. Each 4 bytes have 4 neighbouring elements. Each 16 bytes have 4 of each 16 elements.
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
    /// Packs each 2 bytes, with a 4-bit code in each byte, into their lower byte, and clears the upper one.
    [[gnu::always_inline]] ZEROPP_DETAIL_AVX512 static ints pairs(codes64 codes) {
        const ints four = reinterpret_cast<ints>(codes);
        return (four & 0x000f000f) | (four >> 4 & 0x00f000f0);
    }
};

/// codes <- the integers nearest to x[i] * factor, as two's complement of `Bits` bits, for n elements. No integer may
/// be below the lowest code, nor above the highest code unless `Bounds`. Requires n to be a multiple of 64, or of 128
/// for 4 bits.
template <int Bits, bool Bounds, class T>
ZEROPP_DETAIL_AVX512 void encode_integers(const T* x, std::size_t n, float factor, std::byte* codes) {
    static_assert(Bits == 8 || Bits == 4);
    using codes_type = codes_of<T>;
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

/// Maxima, lane by lane, of each two neighbouring groups of `Lanes` lanes: the maxima within a, then within b.
template <int Lanes>
[[gnu::always_inline]] ZEROPP_DETAIL_AVX512 inline ints folded(ints a, ints b) {
    static_assert(Lanes == 8 || Lanes == 4 || Lanes == 2 || Lanes == 1);
    ints lower;
    ints upper;
    if constexpr (Lanes == 8) {
        lower = __builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23);
        upper = __builtin_shufflevector(a, b, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31);
    } else if constexpr (Lanes == 4) {
        lower = __builtin_shufflevector(a, b, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27);
        upper = __builtin_shufflevector(a, b, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31);
    } else if constexpr (Lanes == 2) {
        lower = __builtin_shufflevector(a, b, 0, 1, 4, 5, 8, 9, 12, 13, 16, 17, 20, 21, 24, 25, 28, 29);
        upper = __builtin_shufflevector(a, b, 2, 3, 6, 7, 10, 11, 14, 15, 18, 19, 22, 23, 26, 27, 30, 31);
    } else {
        lower = __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
        upper = __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
    }
    return lower > upper ? lower : upper;
}

/// The two elements of a block that are farthest above and below zero. Inf and NaN are farthest; a NaN may get other
/// bits. If no element is on one side of zero, that extreme is another element of the block.
struct extremes {
    float above;
    float below;
};

/// of_blocks[b] <- the extremes of block b of x, of `block_size` elements. Requires `block_size` to be a multiple of
/// 32.
template <class T>
ZEROPP_DETAIL_AVX512 void find_extremes(const T* x, std::size_t block_size, extremes (&of_blocks)[blocks_together]) {
    // As signed integers, bits of elements above zero order like magnitudes. As unsigned integers, bits of elements
    // below zero do. Unsigned integers with a flipped sign bit order like signed ones.
    constexpr int sign = -0x7fffffff - 1;
    ints found[blocks_together];
    ZEROPP_DETAIL_UNROLL(8)
    for (std::size_t b = 0; b != blocks_together; ++b) {
        shorts above;
        std::memcpy(&above, x + b * block_size, sizeof above);
        auto below = reinterpret_cast<unsigned_shorts>(above);
        for (std::size_t i = 2 * lanes; i != block_size; i += 2 * lanes) {
            shorts some;
            std::memcpy(&some, x + b * block_size + i, sizeof some);
            // Keeps `some` in a register. Otherwise the compiler would load it again for each use.
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
        found[b] = folded<8>(even > odd ? even : odd, reinterpret_cast<ints>(all_below) ^ sign);
    }
    ZEROPP_DETAIL_UNROLL(4)
    for (std::size_t b = 0; b != 4; ++b) found[b] = folded<4>(found[2 * b], found[2 * b + 1]);
    ZEROPP_DETAIL_UNROLL(2)
    for (std::size_t b = 0; b != 2; ++b) found[b] = folded<2>(found[2 * b], found[2 * b + 1]);
    const ints signs_of_below = {0, sign, 0, sign, 0, sign, 0, sign, 0, sign, 0, sign, 0, sign, 0, sign};
    const ints all = folded<1>(found[0], found[1]) ^ signs_of_below;
    static_assert(sizeof all == sizeof of_blocks);
    if constexpr (std::is_same_v<T, half>) {
        const floats values = floats_of(__builtin_convertvector(all >> 16, half_shorts));
        std::memcpy(of_blocks, &values, sizeof values);
    } else {
        std::memcpy(of_blocks, &all, sizeof all);
    }
}

}  // namespace zeropp::detail::avx512

#endif
