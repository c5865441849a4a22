#pragma once
/// \file
/// Blocks on the host: elements as floats in, codes and parameters out, and back.

#include <zeropp/codec/host/pack.hpp>
#include <zeropp/codec/host/pieces.hpp>
#include <zeropp/codec/host/target.hpp>
#include <zeropp/core/element.hpp>
#include <zeropp/core/message_place.hpp>
#include <zeropp/quantizer/abilities.hpp>
#include <zeropp/quantizer/wire_layout.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace zeropp::detail {

ZEROPP_DETAIL_INLINE_BEGIN

/// Several blocks are fitted before the first is encoded, so that one does not wait for the divisions of another: so
/// many.
template <quantizer Q>
inline constexpr std::size_t stretch_blocks = std::max<std::size_t>(1024 / static_cast<std::size_t>(Q::block_size), 1);

/// The elements of a granule, whose noise is made at once.
inline constexpr std::size_t granule_elements = 8;

/// The fitted parameters, or those of least error for a quantizer that searches.
template <quantizer Q, class Size>
typename Q::params best_params(const Q& q, const float* values, Size n, const typename Q::params& fitted) {
    if constexpr (searching_quantizer<Q>) {
        typename Q::params best = fitted;
        std::uint32_t least = ~0u;
        for (int k = 0; k != Q::candidates; ++k) {
            const typename Q::params params = q.candidate(fitted, k);
            std::uint32_t error = 0;
            for (std::size_t i = 0; i != n; ++i) error += q.error(values[i], params, fitted);
            if (error < least) {
                least = error;
                best = params;
            }
        }
        return best;
    } else {
        return fitted;
    }
}

/// The parameters of each block of n values.
template <quantizer Q, class Size>
void fit_blocks(const Q& q, const float* values, Size n, typename Q::params* params) {
    for_each_piece<static_cast<std::size_t>(Q::block_size)>(n, [&](std::size_t begin, auto some) {
        typename Q::stats stats;
        for (std::size_t i = 0; i != some; ++i) {
            add_element<Q>(stats, values[begin + i], static_cast<std::uint32_t>(i));
        }
        *params++ = best_params(q, values + begin, some, q.fit(stats));
    });
}

/// Which elements of the tensor that all ranks know are encoded: the first one's index, and whether they are sums.
struct encoded_elements {
    std::size_t index;
    bool sums;
};

/// noise[i] <- the noise of element `what.index` + i, for n elements. Requires room for 8 more.
template <dithering_quantizer Q>
const float* noise_of(const Q& q, encoded_elements what, std::size_t n, float* noise) {
    const std::size_t ahead = what.index % granule_elements;
    for (std::size_t g = 0; g * granule_elements < ahead + n; ++g) {
        const rounding_noise words = q.noise(what.index / granule_elements + g, what.sums);
        for (std::size_t i = 0; i != granule_elements; ++i) {
            noise[g * granule_elements + i] = words.at(static_cast<int>(i));
        }
    }
    return noise + ahead;
}

/// The codes of n values of one block, from `position` on; no more than `piece_size` of them.
template <quantizer Q, class Size>
void encode_piece(const Q& q, const typename Q::params& of_block, const float* values, Size n, std::uint32_t position,
                  encoded_elements what, std::byte* codes) {
    // A copy, which codes that are written cannot change, even if both are bytes: it stays in registers.
    const typename Q::params params = of_block;
    constexpr std::size_t piece = std::min(piece_size, static_cast<std::size_t>(Q::block_size));
    code_word<Q::code_bits> words[piece];
    float room[piece + 2 * granule_elements];
    const float* noise = room;
    if constexpr (dithering_quantizer<Q>) noise = noise_of(q, what, n, room);
    for (std::size_t i = 0; i != n; ++i) {
        const float of_element = dithering_quantizer<Q> ? noise[i] : 0.0f;
        words[i] = static_cast<code_word<Q::code_bits>>(
            encode_element(q, values[i], params, position + static_cast<std::uint32_t>(i), of_element));
    }
    pack<Q::code_bits>(words, n, codes);
}

/// The codes of each block of n values, which begin with a block.
template <quantizer Q, class Size>
void encode_blocks(const Q& q, const typename Q::params* params, const float* values, Size n, encoded_elements what,
                   std::byte* codes) {
    constexpr auto block_size = static_cast<std::size_t>(Q::block_size);
    for_each_piece<std::min(piece_size, block_size)>(n, [&](std::size_t begin, auto some) {
        encode_piece(q, params[begin / block_size], values + begin, some,
                     static_cast<std::uint32_t>(begin % block_size), {what.index + begin, what.sums},
                     codes + code_bytes<Q>(begin));
    });
}

/// Where codes and parameters of one section of a message are, and the number that scales all of the message.
template <class Byte>
struct coded {
    Byte* codes;
    Byte* params;
    Byte* scale;

    template <quantizer Q>
    coded(const wire_layout<Q>& layout, const message_place& place, Byte* message)
        : codes(message + layout.codes_at(place)), params(message + layout.params_at(place)),
          scale(message + layout.scale_offset) {}
    // nvcc takes the constructor below for the only one that copies.
    coded(const coded&) = default;
    /// The same, to be read.
    coded(const coded<std::remove_const_t<Byte>>& other) requires std::is_const_v<Byte>
        : codes(other.codes), params(other.params), scale(other.scale) {}

    /// The same section of a message so many bytes behind.
    coded behind(std::size_t bytes) const {
        coded other = *this;
        other.codes += bytes;
        other.params += bytes;
        other.scale += bytes;
        return other;
    }
};
using coded_section = coded<const std::byte>;

/// The quantizer of one message, whose scale it holds, if messages of Q have one.
template <quantizer Q>
Q quantizer_of(const Q& q, const coded_section& from) {
    if constexpr (message_scaled_quantizer<Q>) {
        float absmax;
        std::memcpy(&absmax, from.scale, sizeof absmax);
        return q.scaled_for(absmax);
    } else {
        return q;
    }
}

/// The parameters of the block with element `first`, where the quantizer has any.
template <quantizer Q>
typename Q::params read_params(const coded_section& from, std::size_t first) {
    typename Q::params params;
    if constexpr (params_bytes<Q> != 0) {
        constexpr auto block_size = static_cast<std::size_t>(Q::block_size);
        std::memcpy(&params, from.params + first / block_size * params_bytes<Q>, params_bytes<Q>);
    }
    return params;
}

/// use(i, value) for each of elements [begin, begin + n) of a section, i counting from 0; rotated, if Q rotates. `q` is
/// the message's own. Requires begin to be a multiple of the block's size or `piece_size`, whichever is less.
template <quantizer Q, class Size, class Use>
void decode_elements(const Q& q, const coded_section& from, std::size_t begin, Size n, Use use) {
    constexpr auto block_size = static_cast<std::size_t>(Q::block_size);
    constexpr std::size_t piece = std::min(piece_size, block_size);
    for_each_piece<piece>(n, [&](std::size_t done, auto some) {
        const std::size_t first = begin + done;
        const typename Q::params params = read_params<Q>(from, first);
        const auto position = static_cast<std::uint32_t>(first % block_size);
        const std::byte* const codes = from.codes + code_bytes<Q>(first);
        const auto each = [&](std::size_t i, std::uint32_t code) {
            use(done + i, decode_element(q, code, params, position + static_cast<std::uint32_t>(i)));
        };
        if constexpr (Q::code_bits == 8) {
            // Where they lie: a copy would be in pieces smaller than those that loops for AVX2 read.
            for (std::size_t i = 0; i != some; ++i) each(i, static_cast<std::uint8_t>(codes[i]));
        } else {
            code_word<Q::code_bits> words[piece];
            unpack<Q::code_bits>(codes, some, words);
            for (std::size_t i = 0; i != some; ++i) each(i, words[i]);
        }
    });
}

ZEROPP_DETAIL_INLINE_END

}  // namespace zeropp::detail
