#pragma once
/// \file
/// One message on the host: elements as floats in, bytes out, and back.

#include <zeropp/codec/pack.hpp>
#include <zeropp/quantizer/wire_layout.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace zeropp::detail {

/// Codes are handled in pieces that stay in the first-level cache. A multiple of 8, so that pieces end on bytes.
inline constexpr std::size_t piece_size = 256;

/// Encodes the n values of one block into its codes, and returns its parameters.
template <quantizer Q>
typename Q::params encode_block(const Q& q, const float* values, std::size_t n, std::byte* codes) {
    typename Q::stats stats;
    for (std::size_t i = 0; i != n; ++i) stats.add(values[i]);
    const typename Q::params params = q.fit(stats);
    for (std::size_t begin = 0; begin < n; begin += piece_size) {
        const std::size_t some = std::min(piece_size, n - begin);
        std::uint32_t piece[piece_size];
        for (std::size_t i = 0; i != some; ++i) piece[i] = q.encode(values[begin + i], params);
        pack<Q::code_bits>(piece, some, codes + code_bytes<Q>(begin));
    }
    return params;
}

/// Encodes `valid` elements into a message laid out for `layout.elements`; everything without an element is zero.
/// load(begin, n, values) supplies elements [begin, begin + n) as floats.
template <quantizer Q, class Load>
void encode_message(const Q& q, const wire_layout<Q>& layout, std::size_t valid, Load load, std::byte* message) {
    constexpr auto block_size = static_cast<std::size_t>(Q::block_size);
    std::byte* params = message + layout.params_offset;
    for (std::size_t begin = 0; begin < valid; begin += block_size) {
        const std::size_t n = std::min(block_size, valid - begin);
        float values[block_size];
        load(begin, n, values);
        const typename Q::params p = encode_block(q, values, n, message + code_bytes<Q>(begin));
        if constexpr (params_bytes<Q> != 0) {
            std::memcpy(params, &p, params_bytes<Q>);
            params += params_bytes<Q>;
        }
    }
    std::byte* const codes_end = message + code_bytes<Q>(valid);
    std::fill(codes_end, message + layout.params_offset, std::byte{0});
    std::fill(params, message + layout.bytes, std::byte{0});
}

/// values <- elements [begin, begin + n) of a message. Requires begin to be a multiple of 8.
template <quantizer Q>
void decode_elements(const Q& q, const wire_layout<Q>& layout, const std::byte* message, std::size_t begin,
                     std::size_t n, float* values) {
    constexpr auto block_size = static_cast<std::size_t>(Q::block_size);
    while (n != 0) {
        const std::size_t block = begin / block_size;
        const std::size_t some = std::min({n, (block + 1) * block_size - begin, piece_size});
        typename Q::params params;
        if constexpr (params_bytes<Q> != 0) {
            std::memcpy(&params, message + layout.params_offset + block * params_bytes<Q>, params_bytes<Q>);
        }
        std::uint32_t piece[piece_size];
        unpack<Q::code_bits>(message + code_bytes<Q>(begin), some, piece);
        for (std::size_t i = 0; i != some; ++i) values[i] = q.decode(piece[i], params);
        values += some;
        begin += some;
        n -= some;
    }
}

/// values <- the sum, in order, of elements [begin, begin + n) of `contributors` messages, `stride` bytes apart.
template <quantizer Q>
void sum_elements(const Q& q, const wire_layout<Q>& layout, const std::byte* messages, std::size_t stride,
                  int contributors, std::size_t begin, std::size_t n, float* values) {
    for (std::size_t done = 0; done < n; done += piece_size) {
        const std::size_t some = std::min(piece_size, n - done);
        float* const sum = values + done;
        decode_elements(q, layout, messages, begin + done, some, sum);
        for (int c = 1; c < contributors; ++c) {
            float next[piece_size];
            decode_elements(q, layout, messages + static_cast<std::size_t>(c) * stride, begin + done, some, next);
            for (std::size_t i = 0; i != some; ++i) sum[i] += next[i];
        }
    }
}

}  // namespace zeropp::detail
