#pragma once
/// \file
/// Sources of values for the host codec: a tensor, a difference of tensors, or a sum of messages. A source is a
/// function load(begin, n, buffer). It returns the address of elements [begin, begin + n) of a section, as floats: in a
/// tensor of floats, or in `buffer`.

#include <zeropp/codec/codec.hpp>
#include <zeropp/codec/host/avx512.hpp>
#include <zeropp/codec/host/blocks.hpp>
#include <zeropp/codec/host/rotation.hpp>
#include <zeropp/codec/host/share.hpp>
#include <zeropp/codec/host/sixteen_bits.hpp>
#include <zeropp/codec/host/target.hpp>
#include <zeropp/core/element.hpp>
#include <zeropp/core/math.hpp>
#include <zeropp/layout/slices.hpp>
#include <zeropp/layout/wire_layout.hpp>
#include <zeropp/quantizer/quantizer.hpp>
#include <zeropp/quantizer/small_float.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace zeropp::detail {

ZEROPP_DETAIL_INLINE_BEGIN

template <element T, class Size>
void load_elements(const T* from, Size n, float* to) {
#if ZEROPP_DETAIL_HAS_WIDE_TARGETS
    if constexpr (std::is_same_v<T, half> && avx512::serves<Size, avx512::lanes>) {
        if (avx512::floats_of_halves(from, n, to)) return;
    }
#endif
    for (std::size_t i = 0; i != n; ++i) to[i] = element_traits<T>::to_float(from[i]);
}

template <element T, class Size>
void store_elements(const float* from, Size n, T* to) {
#if ZEROPP_DETAIL_HAS_WIDE_TARGETS
    if constexpr (std::is_same_v<T, bfloat16> && avx512::serves<Size, 2 * avx512::lanes>) {
        if (avx512::bfloat16s_of_floats(from, n, to)) return;
    }
    if constexpr (std::is_same_v<T, half> && avx512::serves<Size, avx512::lanes>) {
        avx512::halves_of_floats(from, n, to);
    } else  // nvcc warns of a loop that no instance reaches after a return
#endif
        for (std::size_t i = 0; i != n; ++i) to[i] = element_traits<T>::from_float(from[i]);
}

template <class Size>
void divide(float* x, Size n, float divisor) {
    if (divisor == 1.0f) return;
#if ZEROPP_DETAIL_HAS_WIDE_TARGETS
    if constexpr (avx512::serves<Size, 1>) {
        // A power of two has an exact reciprocal. Multiplying by that gives the quotient's bits, ten times as fast.
        const bool exact = (float_bits(divisor) & 0x007fffffu) == 0 && divisor >= 0x1p-126f && divisor <= 0x1p126f;
        if (exact) return avx512::multiply(x, n, quotient(1.0f, divisor));
    }
#endif
    for (std::size_t i = 0; i != n; ++i) x[i] = quotient(x[i], divisor);
}

/// True if a table of 16 values can decode a block of Q: codes have 4 bits, and 32 divides the block size.
template <quantizer Q>
inline constexpr bool decodes_by_table = Q::code_bits == 4 && static_cast<std::size_t>(Q::block_size) % 32 == 0;

/// table[code] <- the value of the 4-bit `code` in a block with the parameters `params`, as a T.
template <quantizer Q, class T>
void make_table(const Q& q, const typename Q::params& params, T (&table)[16]) {
    alignas(64) float values[16];
    ZEROPP_DETAIL_UNROLL(1)
    for (std::uint32_t code = 0; code != 16; ++code) values[code] = q.decode(code, params);
    ZEROPP_DETAIL_UNROLL(1)
    for (std::size_t code = 0; code != 16; ++code) table[code] = element_traits<T>::from_float(values[code]);
}

/// to <- elements [begin, begin + n) of a section, through a table for each block. Requires `begin` to be a
/// multiple of `piece_size`. Works for codes of 4 bits without rotation and a T of 2 bytes, if `Size` says that n is of
/// whole blocks or tiles in AVX-512. Otherwise returns false, with nothing done.
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
/// `type` is the argument by which `avx512::sum_codes` decodes codes of Q: 8-bit integers, `e4m3`, `e5m2`, or 4-bit
/// codes. Void for other codes.
template <quantizer Q>
struct summed_codes : std::type_identity<void> {};
template <integer_quantizer Q>
    requires(Q::code_bits == 8)
struct summed_codes<Q> : std::type_identity<avx512::integers> {};
template <float_quantizer Q>
    requires(std::is_same_v<typename Q::format, e4m3> || std::is_same_v<typename Q::format, e5m2>)
struct summed_codes<Q> : std::type_identity<avx512::small_floats<Q::format::mantissa_bits>> {};
template <quantizer Q>
    requires decodes_by_table<Q>
struct summed_codes<Q> : std::type_identity<avx512::looked_up> {};

/// Number of messages that are summed in one pass. Their tables of decoded values, 64 bytes each, must stay in the
/// first-level cache.
inline constexpr std::size_t messages_at_a_time = 16;

/// sums[i] <- (sums[i] if `adds`) + element `begin` + i of each of `messages` messages, for n elements of one block. If
/// codes are 8-bit floats, returns false, with nothing done, if a code is not finite or a multiplier exceeds 2^118.
/// Requires at most `messages_at_a_time` messages.
template <quantizer Q, class Size>
bool sum_block(const Q& q, const coded_section& first, std::size_t stride, std::size_t messages, std::size_t begin,
               Size n, bool adds, float* sums) {
    using codes_type = typename summed_codes<Q>::type;
    const std::byte* const codes = first.codes + code_bytes<Q>(begin);
    alignas(64) typename codes_type::factor factors[messages_at_a_time];
    for (std::size_t m = 0; m != messages; ++m) {
        const typename Q::params params = read_params<Q>(first.behind(m * stride), begin);
        if constexpr (decodes_by_table<Q> && integer_quantizer<Q>) {
            avx512::multiples(q.multiplier(params), factors[m]);
        } else if constexpr (decodes_by_table<Q>) {
            make_table(q, params, factors[m]);
        } else {
            factors[m] = q.multiplier(params);
            if constexpr (float_quantizer<Q>) {
                const bool too_large = factors[m] > 0x1p118f || factors[m] < -0x1p118f;
                if (too_large || !codes_type::finite(codes + m * stride, n)) return false;
                factors[m] /= codes_type::unit;
            }
        }
    }
    constexpr std::size_t pairs = std::min<std::size_t>(Q::block_size / 32, 4);
    avx512::sum_codes<codes_type, pairs>(factors, messages, codes, stride, n, adds, sums);
    return true;
}
#endif

/// sums[i] <- the sum of element `begin` + i of a section over `contributors` messages, for n elements, by the loops of
/// avx512.hpp. Returns false, with `sums` unspecified, if there is no loop for Q and `Size`. Also returns false if a
/// float code is not finite, or the multiplier of float codes exceeds 2^118. Requires `begin` to be a multiple of
/// `piece_size`.
template <quantizer Q, class Size>
bool sum_in_vectors([[maybe_unused]] const Q& q, [[maybe_unused]] const coded_section& first,
                    [[maybe_unused]] std::size_t stride, [[maybe_unused]] std::size_t contributors,
                    [[maybe_unused]] std::size_t begin, [[maybe_unused]] Size n, [[maybe_unused]] float* sums) {
#if ZEROPP_DETAIL_HAS_WIDE_TARGETS
    constexpr auto block_size = static_cast<std::size_t>(Q::block_size);
    constexpr std::size_t piece = std::min(block_size, piece_size);
    constexpr bool has_loop = !std::is_void_v<typename summed_codes<Q>::type>;
    if constexpr (avx512::serves<Size, piece> && block_size % 32 == 0 && has_loop) {
        bool done = true;
        for (std::size_t c = 0; c < contributors; c += messages_at_a_time) {
            const std::size_t messages = std::min(messages_at_a_time, contributors - c);
            const coded_section from = first.behind(c * stride);
            for_each_piece<block_size>(n, [&](std::size_t at, auto some) {
                done &= sum_block(q, from, stride, messages, begin + at, some, c != 0, sums + at);
            });
        }
        return done;
    }
#endif
    return false;
}

/// to[i] <- element `begin` + i of a section, for n elements, rotated back if Q rotates. Requires `begin` to be a
/// multiple of `piece_size`.
template <quantizer Q, class Size>
void decode_to_floats(const Q& q, const coded_section& from, std::size_t begin, Size n, float* to) {
    if (!sum_in_vectors(q, from, 0, 1, begin, n, to)) {
        decode_elements(q, from, begin, n, [=](std::size_t i, float x) { to[i] = x; });
    }
    rotate<Q>(to, n, true, to);
}

/// sums[i] <- the sum of element `begin` + i of a section over `contributors` messages, for n elements. Messages are
/// `stride` bytes apart, and summed in order. If Q rotates, the sums are rotated back. Requires `begin` to be a
/// multiple of `piece_size`.
template <quantizer Q, class Size>
void sum_elements(const Q& q, const coded_section& first, std::size_t stride, int contributors, std::size_t begin,
                  Size n, float* sums) {
    for_each_piece<piece_size>(n, [&](std::size_t done, auto some) {
        float* const sum = sums + done;
        const auto messages = static_cast<std::size_t>(contributors);
        if (!sum_in_vectors(q, first, stride, messages, begin + done, some, sum)) {
            decode_elements(q, first, begin + done, some, [=](std::size_t i, float x) { sum[i] = x; });
            for (std::size_t m = 1; m < messages; ++m) {
                const coded_section next = first.behind(m * stride);
                decode_elements(q, next, begin + done, some, [=](std::size_t i, float x) { sum[i] += x; });
            }
        }
        rotate<Q>(sum, some, true, sum);
    });
}

ZEROPP_DETAIL_INLINE_END

template <quantizer Q, class Slices>
wire_layout<Q> layout_of(const Slices& where) {
    return wire_layout<Q>(where.last_count(), where.last());
}

template <class Byte>
Byte* message_at(Byte* messages, int slot, std::size_t bytes) {
    return messages + static_cast<std::size_t>(slot) * bytes;
}

ZEROPP_DETAIL_INLINE_BEGIN

/// Source of values: elements of a section in a tensor. `first` is the address of the section's first element.
template <element T>
struct tensor_elements {
    const T* first;

    template <class Size>
    const float* operator()(std::size_t begin, Size n, float* buffer) const {
        if constexpr (std::is_same_v<T, float>) {
            return first + begin;
        } else {
            load_elements(first + begin, n, buffer);
            return buffer;
        }
    }
};
template <element T>
tensor_elements<T> loader(const T* tensor, std::size_t offset) {
    return {tensor + offset};
}
template <class T, class Base>
auto loader(const difference<T*, Base*>& d, std::size_t offset) {
    return [=](std::size_t begin, auto n, float* buffer) -> const float* {
        const T* const slice = d.tensor + offset + begin;
        const Base* const base = d.base + offset + begin;
        for (std::size_t i = 0; i != n; ++i) {
            buffer[i] = element_traits<std::remove_const_t<T>>::to_float(slice[i]) -
                        finite_or_zero(element_traits<std::remove_const_t<Base>>::to_float(base[i]));
        }
        return buffer;
    };
}

/// Source of values: a section's sums over the contributors of `of`. `first` has the addresses of the section in the
/// first contributor's message. The next contributor's message begins `stride` bytes later.
template <quantizer Q>
struct section_sum {
    message_sum<Q> of;
    coded_section first;
    std::size_t stride;

    template <class Size>
    const float* operator()(std::size_t begin, Size n, float* buffer) const {
        sum_elements(of.quantizer, first, stride, of.contributors, begin, n, buffer);
        divide(buffer, n, of.divisor);
        return buffer;
    }
};

/// Source of the values of one section to encode: elements from the source `load`, rotated if Q rotates, plus
/// residuals.
template <quantizer Q, class Load, class Residuals>
struct section_values {
    Load load;
    Residuals residuals;

    template <class Size>
    const float* operator()(std::size_t begin, Size n, float* buffer) const {
        const float* const values = load(begin, n, buffer);
        if constexpr (rotating_quantizer<Q> || Residuals::any) {
            rotate<Q>(values, n, false, buffer);
            if constexpr (Residuals::any) residuals.add(begin, n, buffer);
            return buffer;
        } else {
            return values;
        }
    }
};

ZEROPP_DETAIL_INLINE_END

/// A function open(of, i, s). It returns the source for section `of`, with index i, in slot s: the elements of a
/// tensor, or of a difference.
template <class Tensor, class Slices>
auto opener(const Tensor& tensor, const Slices& where) {
    return [&](const section& of, std::size_t i, int s) {
        return loader(tensor_at(tensor, where.tensor(i)), of.offset(where.in_memory(s)));
    };
}
/// A function open(of, i, s). It returns the source for section `of`, with index i, in slot s: the sums of messages.
template <quantizer Q, class Slices>
auto opener(const message_sum<Q>& sum, const Slices& where) {
    const auto layout = layout_of<Q>(where);
    return [=](const section& of, std::size_t, int s) {
        const coded_section first(layout, of.place, message_at(sum.messages, s, layout.bytes));
        return section_sum<Q>{sum, first, static_cast<std::size_t>(where.slots) * layout.bytes};
    };
}

}  // namespace zeropp::detail
