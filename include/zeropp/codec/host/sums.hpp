#pragma once
/// \file
/// Decodes messages to floats on the host: the sum of several, or one.

#include <zeropp/codec/host/avx512.hpp>
#include <zeropp/codec/host/blocks.hpp>
#include <zeropp/codec/host/rotation.hpp>
#include <zeropp/core/element.hpp>
#include <zeropp/quantizer/abilities.hpp>
#include <zeropp/quantizer/small_float.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace zeropp::detail {

ZEROPP_DETAIL_INLINE_BEGIN

/// True if 4-bit codes of a block can be decoded through a table of 16 values.
template <quantizer Q>
inline constexpr bool decodes_by_table =
    Q::code_bits == 4 && !positional_quantizer<Q> && static_cast<std::size_t>(Q::block_size) % 32 == 0;

/// table[code] <- the decoded code, as a T.
template <quantizer Q, class T>
void make_table(const Q& q, const typename Q::params& params, T (&table)[16]) {
    alignas(64) float values[16];
    ZEROPP_DETAIL_UNROLL(1)
    for (std::uint32_t code = 0; code != 16; ++code) values[code] = q.decode(code, params);
    ZEROPP_DETAIL_UNROLL(1)
    for (std::size_t code = 0; code != 16; ++code) table[code] = element_traits<T>::from_float(values[code]);
}

/// to <- elements [begin, begin + n) of a section, through a table for each block. Returns false, with nothing done,
/// unless T has 2 bytes and the loop is AVX-512's over whole tiles. Requires `begin` to be a multiple of `piece_size`.
template <quantizer Q, element T, class Size>
bool decode_by_table([[maybe_unused]] const Q& q, [[maybe_unused]] const coded_section& from,
                     [[maybe_unused]] std::size_t begin, [[maybe_unused]] Size n, [[maybe_unused]] T* to) {
#if ZEROPP_DETAIL_HAS_WIDE_TARGETS
    constexpr auto block_size = static_cast<std::size_t>(Q::block_size);
    constexpr std::size_t piece = std::min(block_size, piece_size);
    constexpr bool looks_up = decodes_by_table<Q> && !rotating_quantizer<Q> && sizeof(T) == 2;
    if constexpr (looks_up && avx512::serves<Size, piece>) {
        for_each_piece<block_size>(n, [&](std::size_t done, auto some) {
            T table[16];
            make_table(q, read_params<Q>(from, begin + done), table);
            avx512::look_up(table, from.codes + code_bytes<Q>(begin + done), some, to + done);
        });
        return true;
    }
#endif
    return false;
}

#if ZEROPP_DETAIL_HAS_WIDE_TARGETS
/// The `Codes` for `avx512::sum_multiples` to sum Q's 8-bit codes, in a std::type_identity; void if there are none.
template <quantizer Q>
constexpr auto multiplied_codes() {
    if constexpr (integer_quantizer<Q> && Q::code_bits == 8) {
        return std::type_identity<avx512::integers>();
    } else if constexpr (float_quantizer<Q>) {
        if constexpr (std::is_same_v<typename Q::format, e4m3> || std::is_same_v<typename Q::format, e5m2>) {
            return std::type_identity<avx512::small_floats<Q::format::mantissa_bits>>();
        } else {
            return std::type_identity<void>();
        }
    } else {
        return std::type_identity<void>();
    }
}
template <quantizer Q>
inline constexpr bool multiplies = !std::is_void_v<typename decltype(multiplied_codes<Q>())::type>;

/// Number of messages summed at once: their parameters stay in the first-level cache.
inline constexpr std::size_t messages_at_a_time = 16;

/// sums <- the sum of elements [begin, begin + n), of one block, over `messages` messages; added to `sums` if `adds`.
/// Returns false, with nothing done, if a code is not finite or a multiplier nearly too large.
template <quantizer Q, class Size>
bool sum_multiples(const Q& q, const coded_section& first, std::size_t stride, std::size_t messages, std::size_t begin,
                   Size n, bool adds, float* sums) {
    using codes_type = typename decltype(multiplied_codes<Q>())::type;
    const std::byte* const codes = first.codes + code_bytes<Q>(begin);
    float multipliers[messages_at_a_time];
    for (std::size_t m = 0; m != messages; ++m) {
        multipliers[m] = q.multiplier(read_params<Q>(first.behind(m * stride), begin));
        if constexpr (float_quantizer<Q>) {
            const bool too_large = multipliers[m] > 0x1p118f || multipliers[m] < -0x1p118f;
            if (too_large || !codes_type::finite(codes + m * stride, n)) return false;
            multipliers[m] /= codes_type::unit;
        }
    }
    constexpr std::size_t pairs = std::min<std::size_t>(Q::block_size / 32, 4);
    avx512::sum_multiples<codes_type, pairs>(multipliers, messages, codes, stride, n, adds, sums);
    return true;
}

/// sums <- the sum of elements [begin, begin + n), of one block, over `messages` messages; added to `sums` if `adds`.
template <quantizer Q, class Size>
void sum_looked_up(const Q& q, const coded_section& first, std::size_t stride, std::size_t messages, std::size_t begin,
                   Size n, bool adds, float* sums) {
    alignas(64) float tables[messages_at_a_time][16];
    for (std::size_t m = 0; m != messages; ++m) {
        const coded_section message = first.behind(m * stride);
        const typename Q::params params = read_params<Q>(message, begin);
        if constexpr (integer_quantizer<Q>) {
            avx512::multiples(q.multiplier(params), tables[m]);
        } else {
            make_table(quantizer_of(q, message), params, tables[m]);
        }
    }
    constexpr std::size_t pairs = std::min<std::size_t>(Q::block_size / 32, 4);
    avx512::sum_looked_up<pairs>(tables, messages, first.codes + code_bytes<Q>(begin), stride, n, adds, sums);
}
#endif

/// sums <- the sum of elements [begin, begin + n) of a section over `contributors` messages, in hand-written AVX-512.
/// Returns false, with `sums` unspecified, unless codes have 4 bits or (most) 8 and tiles are whole. Requires `begin`
/// to be a multiple of `piece_size`.
template <quantizer Q, class Size>
bool sum_in_vectors([[maybe_unused]] const Q& q, [[maybe_unused]] const coded_section& first,
                    [[maybe_unused]] std::size_t stride, [[maybe_unused]] std::size_t contributors,
                    [[maybe_unused]] std::size_t begin, [[maybe_unused]] Size n, [[maybe_unused]] float* sums) {
#if ZEROPP_DETAIL_HAS_WIDE_TARGETS
    constexpr auto block_size = static_cast<std::size_t>(Q::block_size);
    constexpr std::size_t piece = std::min(block_size, piece_size);
    if constexpr (avx512::serves<Size, piece> && block_size % 32 == 0 && (multiplies<Q> || decodes_by_table<Q>)) {
        bool done = true;
        for (std::size_t c = 0; c < contributors; c += messages_at_a_time) {
            const std::size_t messages = std::min(messages_at_a_time, contributors - c);
            const coded_section from = first.behind(c * stride);
            for_each_piece<block_size>(n, [&](std::size_t at, auto some) {
                if constexpr (multiplies<Q>) {
                    done &= sum_multiples(q, from, stride, messages, begin + at, some, c != 0, sums + at);
                } else {
                    sum_looked_up(q, from, stride, messages, begin + at, some, c != 0, sums + at);
                }
            });
        }
        return done;
    }
#endif
    return false;
}

/// to <- elements [begin, begin + n) of a section, rotated back if Q rotates.
template <quantizer Q, class Size>
void decode_to_floats(const Q& q, const coded_section& from, std::size_t begin, Size n, float* to) {
    if (!sum_in_vectors(q, from, 0, 1, begin, n, to)) {
        decode_elements(quantizer_of(q, from), from, begin, n, [=](std::size_t i, float x) { to[i] = x; });
    }
    rotate<Q>(to, n, true, to);
}

/// sums <- the sum of elements [begin, begin + n) of a section over `contributors` messages, `stride` bytes apart, in
/// order. If Q rotates, rotated back at the end.
template <quantizer Q, class Size>
void sum_elements(const Q& q, const coded_section& first, std::size_t stride, int contributors, std::size_t begin,
                  Size n, float* sums) {
    for_each_piece<piece_size>(n, [&](std::size_t done, auto some) {
        float* const sum = sums + done;
        const auto messages = static_cast<std::size_t>(contributors);
        if (!sum_in_vectors(q, first, stride, messages, begin + done, some, sum)) {
            decode_elements(quantizer_of(q, first), first, begin + done, some,
                            [=](std::size_t i, float x) { sum[i] = x; });
            for (std::size_t m = 1; m < messages; ++m) {
                const coded_section next = first.behind(m * stride);
                decode_elements(quantizer_of(q, next), next, begin + done, some,
                                [=](std::size_t i, float x) { sum[i] += x; });
            }
        }
        rotate<Q>(sum, some, true, sum);
    });
}

ZEROPP_DETAIL_INLINE_END

}  // namespace zeropp::detail
