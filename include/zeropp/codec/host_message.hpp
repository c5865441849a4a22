#pragma once
/// \file
/// One message on the host: elements as floats in, bytes out, and back.

#include <zeropp/codec/host_target.hpp>
#include <zeropp/codec/pack.hpp>
#include <zeropp/quantizer/wire_layout.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace zeropp::detail {

/// Values are handled in pieces that stay in the first-level cache. A multiple of 8, so that pieces end on bytes.
inline constexpr std::size_t piece_size = 256;

/// Calls f(begin, n) for successive pieces of `Piece` of `size` elements. For whole pieces n is a constant, by type:
/// loops over them need no code for what is left over.
template <std::size_t Piece, class F>
void for_each_piece(std::size_t size, const F& f) {
    std::size_t begin = 0;
    for (; size - begin >= Piece; begin += Piece) f(begin, std::integral_constant<std::size_t, Piece>());
    if (begin != size) f(begin, size - begin);
}
template <std::size_t Piece, std::size_t Size, class F>
void for_each_piece(std::integral_constant<std::size_t, Size> size, const F& f) {
    constexpr std::size_t piece = std::min(Piece, Size);
    static_assert(Size % piece == 0);
    for (std::size_t begin = 0; begin != size; begin += piece) f(begin, std::integral_constant<std::size_t, piece>());
}

/// The outermost of such loops: the whole pieces with the instructions of the processor at hand, and what is left over,
/// which is little, without the code size of that.
template <std::size_t Piece, class F>
void for_each_piece_on_target(std::size_t size, const F& f) {
    const std::size_t whole = size / Piece * Piece;
    if (whole != 0) {
        run_on_target(active_host_target(), [&] {
            for (std::size_t begin = 0; begin != whole; begin += Piece) {
                f(begin, std::integral_constant<std::size_t, Piece>());
            }
        });
    }
    if (whole != size) f(whole, size - whole);
}

/// The parameters of each block of n values.
template <quantizer Q, class Size>
void fit_blocks(const Q& q, const float* values, Size n, typename Q::params* params) {
    for_each_piece<static_cast<std::size_t>(Q::block_size)>(n, [&](std::size_t begin, auto some) {
        typename Q::stats stats;
        for (std::size_t i = 0; i != some; ++i) stats.add(values[begin + i]);
        *params++ = q.fit(stats);
    });
}

/// The codes of each block of n values.
template <quantizer Q, class Size>
void encode_blocks(const Q& q, const typename Q::params* params, const float* values, Size n, std::byte* codes) {
    constexpr auto block_size = static_cast<std::size_t>(Q::block_size);
    constexpr std::size_t piece = std::min(piece_size, block_size);
    for_each_piece<piece>(n, [&](std::size_t begin, auto some) {
        const typename Q::params p = params[begin / block_size];
        code_word<Q::code_bits> words[piece];
        for (std::size_t i = 0; i != some; ++i) {
            words[i] = static_cast<code_word<Q::code_bits>>(q.encode(values[begin + i], p));
        }
        pack<Q::code_bits>(words, some, codes + code_bytes<Q>(begin));
    });
}

/// Encodes `valid` elements into a message laid out for `layout.elements`; everything without an element is zero.
/// load(begin, n, buffer) returns elements [begin, begin + n) as floats, for which it may use `buffer`.
template <quantizer Q, class Load>
void encode_message(const Q& q, const wire_layout<Q>& layout, std::size_t valid, Load load, std::byte* message) {
    constexpr auto block_size = static_cast<std::size_t>(Q::block_size);
    // Several blocks are fitted before the first is encoded, so that one does not wait for the divisions of another.
    constexpr std::size_t stretch = std::max<std::size_t>(block_size, 2048);
    float buffer[stretch];
    std::array<typename Q::params, stretch / block_size> params;
    std::byte* params_end = message + layout.params_offset;
    for_each_piece_on_target<stretch>(valid, [&](std::size_t begin, auto n) {
        const float* const values = load(begin, n, buffer);
        fit_blocks(q, values, n, params.data());
        encode_blocks(q, params.data(), values, n, message + code_bytes<Q>(begin));
        if constexpr (params_bytes<Q> != 0) {
            const std::size_t bytes = ceil_div(n, block_size) * params_bytes<Q>;
            std::memcpy(params_end, params.data(), bytes);
            params_end += bytes;
        }
    });
    std::byte* const codes_end = message + code_bytes<Q>(valid);
    std::fill(codes_end, message + layout.params_offset, std::byte{0});
    std::fill(params_end, message + layout.bytes, std::byte{0});
}

/// use(i, value) for each of elements [begin, begin + n) of a message, i counting from 0. Requires begin to be a multiple
/// of `piece_size`.
template <quantizer Q, class Size, class Use>
void decode_elements(const Q& q, const wire_layout<Q>& layout, const std::byte* message, std::size_t begin, Size n,
                     Use use) {
    constexpr auto block_size = static_cast<std::size_t>(Q::block_size);
    constexpr std::size_t piece = std::min(piece_size, block_size);
    for_each_piece<piece>(n, [&](std::size_t done, auto some) {
        const std::size_t first = begin + done;
        typename Q::params params;
        if constexpr (params_bytes<Q> != 0) {
            const std::byte* const stored = message + layout.params_offset + first / block_size * params_bytes<Q>;
            std::memcpy(&params, stored, params_bytes<Q>);
        }
        code_word<Q::code_bits> words[piece];
        unpack<Q::code_bits>(message + code_bytes<Q>(first), some, words);
        for (std::size_t i = 0; i != some; ++i) use(done + i, q.decode(words[i], params));
    });
}

/// sums <- the sum, in order, of elements [begin, begin + n) of `contributors` messages, `stride` bytes apart.
template <quantizer Q, class Size>
void sum_elements(const Q& q, const wire_layout<Q>& layout, const std::byte* messages, std::size_t stride,
                  int contributors, std::size_t begin, Size n, float* sums) {
    for_each_piece<piece_size>(n, [&](std::size_t done, auto some) {
        float* const sum = sums + done;
        decode_elements(q, layout, messages, begin + done, some, [=](std::size_t i, float x) { sum[i] = x; });
        for (int c = 1; c < contributors; ++c) {
            decode_elements(q, layout, messages + static_cast<std::size_t>(c) * stride, begin + done, some,
                            [=](std::size_t i, float x) { sum[i] += x; });
        }
    });
}

}  // namespace zeropp::detail
