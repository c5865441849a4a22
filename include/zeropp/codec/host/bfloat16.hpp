#pragma once
/// \file
/// bfloat16 for AVX-512: floats to it, and encoding it with integers as it lies in a tensor, where no floats in between
/// are stored. Bits are those of the loops beside which it stands.

#include <zeropp/codec/host/avx512.hpp>
#include <zeropp/codec/host/target.hpp>
#include <zeropp/core/element.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>

#if ZEROPP_DETAIL_HAS_WIDE_TARGETS

namespace zeropp::detail::avx512 {

using unsigned_shorts [[gnu::vector_size(64)]] = unsigned short;
using unsigned_lanes [[gnu::vector_size(64)]] = unsigned;
using codes64 [[gnu::vector_size(64)]] = signed char;

/// Whether to[i] <- n floats has been done: not where one is Inf or NaN. Requires n to be a multiple of 32.
ZEROPP_DETAIL_AVX512 inline bool bfloat16s_of_floats(const float* from, std::size_t n, bfloat16* to) {
    unsigned_shorts largest = {};
    for (std::size_t i = 0; i != n; i += 2 * lanes) {
        unsigned_shorts first;
        unsigned_shorts second;
        std::memcpy(&first, from + i, sizeof first);
        std::memcpy(&second, from + i + lanes, sizeof second);
        // From memory once, not for each use.
        __asm__("" : "+v"(first), "+v"(second));
        const unsigned_shorts lower =
            __builtin_shufflevector(first, second, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30, 32, 34,
                                    36, 38, 40, 42, 44, 46, 48, 50, 52, 54, 56, 58, 60, 62);
        const unsigned_shorts upper =
            __builtin_shufflevector(first, second, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31, 33, 35,
                                    37, 39, 41, 43, 45, 47, 49, 51, 53, 55, 57, 59, 61, 63);
        // Ties go to even: up where the last bit that stays is set.
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

/// Of each four bytes, the element in the lower two, and the one in the upper two.
[[gnu::always_inline]] ZEROPP_DETAIL_AVX512 inline floats even_elements(ints two) {
    return reinterpret_cast<floats>(two << 16);
}
[[gnu::always_inline]] ZEROPP_DETAIL_AVX512 inline floats odd_elements(ints two) {
    return reinterpret_cast<floats>(two & -0x10000);
}

/// The integers nearest to 64 elements times `factor`, those beyond the range of a byte becoming its ends. In each 8
/// bytes are 8 elements: four with even indices, then four with odd ones. Each 16 have 8 of the first 32 and 8 of the
/// others.
[[gnu::always_inline]] ZEROPP_DETAIL_AVX512 inline codes64 nearest_codes(const bfloat16* x, float factor) {
    using chars [[gnu::vector_size(64)]] = char;
    ints two[2];
    std::memcpy(two, x, sizeof two);
    const ints even[2] = {nearest(even_elements(two[0]), factor), nearest(even_elements(two[1]), factor)};
    const ints odd[2] = {nearest(odd_elements(two[0]), factor), nearest(odd_elements(two[1]), factor)};
#if defined(__clang__)
    const shorts first = __builtin_ia32_packssdw512(even[0], odd[0]);
    const shorts second = __builtin_ia32_packssdw512(even[1], odd[1]);
    return reinterpret_cast<codes64>(static_cast<chars>(__builtin_ia32_packsswb512(first, second)));
#else
    const shorts first = __builtin_ia32_packssdw512_mask(even[0], odd[0], shorts{}, ~0u);
    const shorts second = __builtin_ia32_packssdw512_mask(even[1], odd[1], shorts{}, ~0u);
    return reinterpret_cast<codes64>(__builtin_ia32_packsswb512_mask(first, second, chars{}, ~0ull));
#endif
}

/// Of each 8 elements in 8 bytes the codes of 4 bits, in the lower 4 bytes.
[[gnu::always_inline]] ZEROPP_DETAIL_AVX512 inline ints pairs_of_codes(codes64 codes) {
    using longs [[gnu::vector_size(64)]] = long long;
    const longs eight = reinterpret_cast<longs>(codes);
    return reinterpret_cast<ints>((eight & 0x0f0f0f0f) | (eight >> 28 & 0xf0f0f0f0));
}

/// codes <- the integers nearest to x[i] * factor, of so many bits as two's complement, for n elements. Requires those
/// integers to be no less than the lowest code and, unless `Bounds`, no more than the highest one; n to be a multiple
/// of 64, of 128 for 4 bits.
template <int Bits, bool Bounds>
ZEROPP_DETAIL_AVX512 void encode_integers(const bfloat16* x, std::size_t n, float factor, std::byte* codes) {
    static_assert(Bits == 8 || Bits == 4);
    if constexpr (Bits == 8) {
        for (std::size_t i = 0; i != n; i += 64) {
            const codes64 mixed = nearest_codes(x + i, factor);
            const codes64 sorted = __builtin_shufflevector(
                mixed, mixed, 0, 4, 1, 5, 2, 6, 3, 7, 16, 20, 17, 21, 18, 22, 19, 23, 32, 36, 33, 37, 34, 38, 35, 39,
                48, 52, 49, 53, 50, 54, 51, 55, 8, 12, 9, 13, 10, 14, 11, 15, 24, 28, 25, 29, 26, 30, 27, 31, 40, 44,
                41, 45, 42, 46, 43, 47, 56, 60, 57, 61, 58, 62, 59, 63);
            std::memcpy(codes + i, &sorted, sizeof sorted);
        }
    } else {
        const codes64 highest = static_cast<signed char>(7) - codes64{};
        for (std::size_t i = 0; i != n; i += 128) {
            codes64 a = nearest_codes(x + i, factor);
            codes64 b = nearest_codes(x + i + 64, factor);
            if constexpr (Bounds) {
                a = a > highest ? highest : a;
                b = b > highest ? highest : b;
            }
            const ints sorted = __builtin_shufflevector(pairs_of_codes(a), pairs_of_codes(b), 0, 4, 8, 12, 2, 6, 10, 14,
                                                        16, 20, 24, 28, 18, 22, 26, 30);
            std::memcpy(codes + i / 2, &sorted, sizeof sorted);
        }
    }
}

/// The larger ones of each two neighbouring groups of so many lanes of a, then of b.
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

/// Blocks whose extremes are found together, so that none waits for what is made of another.
inline constexpr std::size_t blocks_together = 8;

/// The elements of a block that are farthest from zero on either side, Inf and NaN being farther than all others. Where
/// there are none on one side, another element in place of it.
struct extremes {
    float above;
    float below;
};

/// Those of each of `blocks_together`. Requires their size to be a multiple of 32.
ZEROPP_DETAIL_AVX512 inline void find_extremes(const bfloat16* x, std::size_t block_size,
                                               extremes (&of_blocks)[blocks_together]) {
    // Bits as integers order like floats above zero and, once the sign is changed, those below do.
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
            // From memory once, not for each use: 64 bytes are as much as a core reads in a cycle.
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
    std::memcpy(of_blocks, &all, sizeof all);
}

}  // namespace zeropp::detail::avx512

#endif
