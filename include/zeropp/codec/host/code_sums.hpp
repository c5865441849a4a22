#pragma once
/// \file
/// Sums of messages in AVX-512, and look-up of elements in a table in a register, for codes of 4 bits and most of 8.

#include <zeropp/codec/host/avx512.hpp>
#include <zeropp/codec/host/blocks.hpp>
#include <zeropp/codec/host/share.hpp>
#include <zeropp/codec/host/target.hpp>
#include <zeropp/core/element.hpp>
#include <zeropp/layout/wire_layout.hpp>
#include <zeropp/quantizer/quantizer.hpp>
#include <zeropp/quantizer/small_float.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace zeropp::detail {

/// True if whole blocks of Q, or pieces of a block, are 32 codes or more.
template <quantizer Q, class Size>
inline constexpr bool in_whole_vectors =
    Q::block_size % 32 == 0 && on_avx512<Size, std::min(piece_size, static_cast<std::size_t>(Q::block_size))>;

/// True for `sum_in_vectors` of messages of Q.
template <quantizer Q, class Size>
constexpr bool sums_in_vectors() {
    bool any = Q::code_bits == 4 || (Q::code_bits == 8 && integer_quantizer<Q>);
    if constexpr (float_quantizer<Q>) {
        any |= std::is_same_v<typename Q::format, e4m3> || std::is_same_v<typename Q::format, e5m2>;
    }
    return any && in_whole_vectors<Q, Size>;
}

/// True for `look_up_in_vectors` of a message of Q as elements T.
template <quantizer Q, class T, class Size>
inline constexpr bool looks_up_in_vectors =
    Q::code_bits == 4 && !rotating_quantizer<Q> && sizeof(T) == 2 && in_whole_vectors<Q, Size>;

}  // namespace zeropp::detail

#if ZEROPP_DETAIL_HAS_WIDE_TARGETS

namespace zeropp::detail {
namespace avx512 {

/// Codes of Q, 32 at a time, as two vectors of values. `prepare` makes the `state` that decodes a block's codes, from
/// the block's parameters and n codes. It returns false if it cannot.
template <quantizer Q>
struct eight_bits {
    using state = float;

    static bool prepare(const Q& q, const typename Q::params& params, const std::byte*, std::size_t,
                        state& multiplier) {
        multiplier = q.multiplier(params);
        return true;
    }
    [[gnu::always_inline]] ZEROPP_DETAIL_AVX512 static void load(const std::byte* codes, state multiplier,
                                                                 floats (&to)[2]) {
        to[0] = __builtin_convertvector(signed_ints(codes), floats) * multiplier + 0.0f;
        to[1] = __builtin_convertvector(signed_ints(codes + lanes), floats) * multiplier + 0.0f;
    }
};

/// `e4m3` and `e5m2`. They become halves first: as a half, an `e4m3` has 2^-8 of its value. `prepare` fails if a code
/// is not finite, or the multiplier nearly too large.
template <quantizer Q>
struct small_floats : eight_bits<Q> {
    using state = float;
    static constexpr bool e4m3 = Q::format::mantissa_bits == 3;
    using words_of_bytes [[gnu::vector_size(32)]] = unsigned char;

    ZEROPP_DETAIL_AVX512 static bool prepare(const Q& q, const typename Q::params& params, const std::byte* codes,
                                             std::size_t n, state& multiplier) {
        multiplier = q.multiplier(params);
        if (multiplier > 0x1p118f || multiplier < -0x1p118f) return false;
        multiplier *= e4m3 ? 0x1p8f : 1.0f;
        constexpr unsigned char beyond = e4m3 ? 0x7f : 0x7c;
        words_of_bytes largest = {};
        for (std::size_t i = 0; i != n; i += 2 * lanes) {
            words_of_bytes b;
            std::memcpy(&b, codes + i, sizeof b);
            b &= 0x7f;
            largest = b > largest ? b : largest;
        }
        unsigned char all[2 * lanes];
        std::memcpy(all, &largest, sizeof all);
        unsigned char most = 0;
        for (const unsigned char each : all) most = each > most ? each : most;
        return most < beyond;
    }
    [[gnu::always_inline]] ZEROPP_DETAIL_AVX512 static void load(const std::byte* codes, state multiplier,
                                                                 floats (&to)[2]) {
        words_of_bytes b;
        std::memcpy(&b, codes, sizeof b);
#if defined(__clang__)
        const shorts words = __builtin_convertvector(b, shorts);
#else
        using chars [[gnu::vector_size(32)]] = char;
        const shorts words = __builtin_ia32_pmovzxbw512_mask(reinterpret_cast<chars>(b), shorts{}, ~0u);
#endif
        constexpr short sign = -0x8000;
        const shorts halves = e4m3 ? (words << 8 & sign) | (words << 7 & 0x3f80) : words << 8;
        const floats first =
            floats_of(__builtin_shufflevector(halves, halves, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
        const floats second = floats_of(
            __builtin_shufflevector(halves, halves, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31));
        to[0] = first * multiplier + 0.0f;
        to[1] = second * multiplier + 0.0f;
    }
};

/// table[code] <- the decoded code, as a T.
template <quantizer Q, class T>
void make_table(const Q& q, const typename Q::params& params, T (&table)[16]) {
    alignas(64) float values[16];
    ZEROPP_DETAIL_UNROLL(1)
    for (std::uint32_t code = 0; code != 16; ++code) values[code] = q.decode(code, params);
    ZEROPP_DETAIL_UNROLL(1)
    for (std::size_t code = 0; code != 16; ++code) table[code] = element_traits<T>::from_float(values[code]);
}

/// 4-bit codes, through a table. Values with even indices come before those with odd ones, as lower before upper bits
/// of bytes. `part` brings 32 values into this order, `join` back.
template <quantizer Q>
struct four_bits {
    struct state {
        alignas(64) float values[16];
    };

    ZEROPP_DETAIL_AVX512 static bool prepare(const Q& q, const typename Q::params& params, const std::byte*,
                                             std::size_t, state& table) {
        if constexpr (integer_quantizer<Q>) {
            constexpr floats codes = {0, 1, 2, 3, 4, 5, 6, 7, -8, -7, -6, -5, -4, -3, -2, -1};
            store(codes * q.multiplier(params) + 0.0f, table.values);
        } else {
            make_table(q, params, table.values);
        }
        return true;
    }
    [[gnu::always_inline]] ZEROPP_DETAIL_AVX512 static void load(const std::byte* codes, const state& table,
                                                                 floats (&to)[2]) {
        const floats values = loaded(table.values);
        const ints two = unsigned_ints(codes);
        to[0] = found(values, two);
        to[1] = found(values, two >> 4);
    }
    [[gnu::always_inline]] ZEROPP_DETAIL_AVX512 static void part(floats (&x)[2]) {
        const floats first = x[0];
        const floats second = x[1];
        x[0] = __builtin_shufflevector(first, second, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
        x[1] = __builtin_shufflevector(first, second, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
    }
    [[gnu::always_inline]] ZEROPP_DETAIL_AVX512 static void join(floats (&x)[2]) {
        const floats even = x[0];
        const floats odd = x[1];
        x[0] = __builtin_shufflevector(even, odd, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
        x[1] = __builtin_shufflevector(even, odd, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
    }
};

template <quantizer Q>
using codes_of = std::conditional_t<Q::code_bits == 4, four_bits<Q>,
                                    std::conditional_t<integer_quantizer<Q>, eight_bits<Q>, small_floats<Q>>>;

/// sums[i] <- the sum over messages m, in order, of value i by states[m], added to sums[i] if `adds`. For n codes in
/// messages `stride` bytes apart. Requires n to be a multiple of 32 * Pairs. `Pairs` pairs of vectors are in registers.
template <quantizer Q, std::size_t Pairs>
ZEROPP_DETAIL_AVX512 void sum_codes(const typename codes_of<Q>::state* states, std::size_t messages,
                                    const std::byte* codes, std::size_t stride, std::size_t n, bool adds, float* sums) {
    using codes_type = codes_of<Q>;
    constexpr std::size_t pair_bytes = 32 * Q::code_bits / 8;
    for (std::size_t i = 0; i != n; i += 2 * Pairs * lanes, codes += Pairs * pair_bytes) {
        floats sum[Pairs][2];
        ZEROPP_DETAIL_UNROLL(4)
        for (std::size_t k = 0; k != Pairs; ++k) {
            if (adds) {
                sum[k][0] = loaded(sums + i + 2 * k * lanes);
                sum[k][1] = loaded(sums + i + (2 * k + 1) * lanes);
                if constexpr (Q::code_bits == 4) codes_type::part(sum[k]);
            } else {
                codes_type::load(codes + k * pair_bytes, states[0], sum[k]);
            }
        }
        for (std::size_t m = adds ? 0 : 1; m != messages; ++m) {
            ZEROPP_DETAIL_UNROLL(4)
            for (std::size_t k = 0; k != Pairs; ++k) {
                floats x[2];
                codes_type::load(codes + m * stride + k * pair_bytes, states[m], x);
                sum[k][0] += x[0];
                sum[k][1] += x[1];
            }
        }
        ZEROPP_DETAIL_UNROLL(4)
        for (std::size_t k = 0; k != Pairs; ++k) {
            if constexpr (Q::code_bits == 4) codes_type::join(sum[k]);
            store(sum[k][0], sums + i + 2 * k * lanes);
            store(sum[k][1], sums + i + (2 * k + 1) * lanes);
        }
    }
}

}  // namespace avx512

/// sums <- the sum of elements [begin, begin + n) of a section over `contributors` messages, `stride` bytes apart, in
/// order. Not rotated back. Requires `begin` to be a multiple of `piece_size`.
template <quantizer Q, class Size>
ZEROPP_DETAIL_AVX512 void sum_in_vectors(const Q& q, const coded_section& first, std::size_t stride,
                                         std::size_t contributors, std::size_t begin, Size n, float* sums) {
    using codes_type = avx512::codes_of<Q>;
    constexpr std::size_t unit = std::min(piece_size, static_cast<std::size_t>(Q::block_size));
    // Parameters of this many messages stay in the first-level cache.
    constexpr std::size_t at_a_time = 16;
    for (std::size_t at = 0; at != n; at += unit) {
        const std::byte* const codes = first.codes + code_bytes<Q>(begin + at);
        for (std::size_t c = 0; c < contributors; c += at_a_time) {
            const std::size_t messages = std::min(at_a_time, contributors - c);
            typename codes_type::state states[at_a_time];
            bool done = true;
            for (std::size_t m = 0; m != messages; ++m) {
                const std::size_t behind = (c + m) * stride;
                done &= codes_type::prepare(q, read_params<Q>(first.behind(behind), begin + at), codes + behind, unit,
                                            states[m]);
            }
            if (!done) {
                sum_one_by_one(q, first, stride, contributors, begin + at, exactly<unit, host_target::avx512>(),
                               sums + at);
                break;
            }
            avx512::sum_codes<Q, std::min<std::size_t>(unit / 32, 4)>(states, messages, codes + c * stride, stride,
                                                                      unit, c != 0, sums + at);
        }
    }
}

/// to <- elements [begin, begin + n) of a section of 4-bit codes. Requires `begin` to be a multiple of `piece_size`.
template <quantizer Q, class T, class Size>
ZEROPP_DETAIL_AVX512 void look_up_in_vectors(const Q& q, const coded_section& from, std::size_t begin, Size n, T* to) {
    constexpr std::size_t unit = std::min(piece_size, static_cast<std::size_t>(Q::block_size));
    for (std::size_t at = 0; at != n; at += unit) {
        T table[16];
        avx512::make_table(q, read_params<Q>(from, begin + at), table);
        // The instruction reads five bits of an index, of which the fifth is not cleared: so the table is there twice.
        avx512::half_shorts once;
        std::memcpy(&once, table, sizeof once);
        const avx512::shorts twice =
            __builtin_shufflevector(once, once, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5,
                                    6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
        const std::byte* const codes = from.codes + code_bytes<Q>(begin + at);
        for (std::size_t i = 0; i != unit; i += 2 * avx512::lanes) {
            const avx512::ints two = avx512::unsigned_ints(codes + i / 2);
            const auto indices = reinterpret_cast<avx512::shorts>(two | two << 12);
#if defined(__clang__)
            const avx512::shorts elements = __builtin_ia32_permvarhi512(twice, indices);
#else
            const avx512::shorts elements = __builtin_shuffle(twice, indices);
#endif
            std::memcpy(to + at + i, &elements, sizeof elements);
        }
    }
}

}  // namespace zeropp::detail

#endif
