#pragma once
/// \file
/// Encodes blocks of floats as codes and parameters on the host, and decodes codes.

#include <zeropp/codec/host/pack.hpp>
#include <zeropp/codec/host/share.hpp>
#include <zeropp/codec/host/target.hpp>
#include <zeropp/layout/wire_layout.hpp>
#include <zeropp/quantizer/quantizer.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace zeropp::detail {

ZEROPP_DETAIL_INLINE_BEGIN

/// Number of blocks that are fitted before the first of them is encoded, so that latencies of their divisions overlap.
template <quantizer Q>
inline constexpr std::size_t stretch_blocks = std::max<std::size_t>(1024 / static_cast<std::size_t>(Q::block_size), 1);

/// Number of elements for which one call of a stochastic_quantizer's `noise` returns noise.
inline constexpr std::size_t granule_elements = 8;

/// params[b] <- parameters of block b of the n values, by the quantizer's `fit`.
template <quantizer Q, class Size>
void fit_blocks(const Q& q, const float* values, Size n, typename Q::params* params) {
    for_each_piece<static_cast<std::size_t>(Q::block_size)>(n, [&](std::size_t begin, auto some) {
        typename Q::stats stats;
        for (std::size_t i = 0; i != some; ++i) stats.add(values[begin + i]);
        *params++ = q.fit(stats);
    });
}

/// params[b] <- parameters of block b of the n values, by the `refit` of a refitting_quantizer; does nothing for other
/// quantizers. Requires params[b] to hold the parameters by `fit`, and at most `stretch_blocks` blocks.
template <quantizer Q, class Size>
void refit_blocks([[maybe_unused]] const Q& q, [[maybe_unused]] const float* values, [[maybe_unused]] Size n,
                  [[maybe_unused]] typename Q::params* params) {
    if constexpr (refitting_quantizer<Q>) {
        constexpr auto block_size = static_cast<std::size_t>(Q::block_size);
        // Makes the sums of all blocks before the first refit, so that latencies of refits overlap.
        typename Q::sums sums[stretch_blocks<Q>];
        for_each_piece<block_size>(n, [&](std::size_t begin, auto some) {
            const typename Q::params fitted = params[begin / block_size];
            typename Q::sums of_block;
            for (std::size_t i = 0; i != some; ++i) of_block.add(values[begin + i], fitted);
            sums[begin / block_size] = of_block;
        });
        for (std::size_t b = 0; b != ceil_div(n, block_size); ++b) params[b] = q.refit(params[b], sums[b]);
    }
}

/// Description of successive elements to encode, on which the noise of stochastic rounding depends.
struct encoded_elements {
    /// Index of the first element in the whole tensor.
    std::size_t index;
    /// True if the elements are sums of decoded elements.
    bool sums;
};

/// Address of the noise of n elements, the first at the index that the second argument gives. Fills `noise`, which
/// needs room for n + 14 floats, because noise is made for whole granules of 8 elements.
template <stochastic_quantizer Q>
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

/// Encodes n values of one block, at most a tile of `piece_size` elements, into `codes`.
template <quantizer Q, class Size>
void encode_piece(const Q& q, const typename Q::params& of_block, const float* values, Size n, encoded_elements what,
                  std::byte* codes) {
    // A copy, which stays in registers: compilers assume that storing a code may change bytes behind the reference.
    const typename Q::params params = of_block;
    constexpr std::size_t piece = std::min(piece_size, static_cast<std::size_t>(Q::block_size));
    code_word<Q::code_bits> words[piece];
    float room[piece + 2 * granule_elements];
    const float* noise = room;
    if constexpr (stochastic_quantizer<Q>) noise = noise_of(q, what, n, room);
    for (std::size_t i = 0; i != n; ++i) {
        const float of_element = stochastic_quantizer<Q> ? noise[i] : 0.0f;
        words[i] = static_cast<code_word<Q::code_bits>>(encode_element(q, values[i], params, of_element));
    }
    pack_codes<Q>(words, n, codes);
}

/// Encodes n values into `codes`, block b with params[b]. Requires the first value to begin a block.
template <quantizer Q, class Size>
void encode_blocks(const Q& q, const typename Q::params* params, const float* values, Size n, encoded_elements what,
                   std::byte* codes) {
    constexpr auto block_size = static_cast<std::size_t>(Q::block_size);
    for_each_piece<std::min(piece_size, block_size)>(n, [&](std::size_t begin, auto some) {
        encode_piece(q, params[begin / block_size], values + begin, some, {what.index + begin, what.sums},
                     codes + code_bytes<Q>(begin));
    });
}

/// Addresses of a section's codes and parameters in a message.
template <class Byte>
struct coded {
    Byte* codes;
    Byte* params;

    template <quantizer Q>
    coded(const wire_layout<Q>& layout, const message_place& place, Byte* message)
        : codes(message + layout.codes_at(place)), params(message + layout.params_at(place)) {}
    // Without this declaration, nvcc takes the converting constructor below for the only copy constructor.
    coded(const coded&) = default;
    coded(const coded<std::remove_const_t<Byte>>& other)
        requires std::is_const_v<Byte>
        : codes(other.codes), params(other.params) {}

    /// The section's addresses in another message, which begins `bytes` bytes later.
    coded behind(std::size_t bytes) const {
        coded other = *this;
        other.codes += bytes;
        other.params += bytes;
        return other;
    }
};
/// Addresses of a section's codes and parameters in a message to decode.
using coded_section = coded<const std::byte>;

/// Parameters of the block that holds element `first` of a section. Reads nothing if Q has no parameters.
template <quantizer Q>
typename Q::params read_params(const coded_section& from, std::size_t first) {
    typename Q::params params;
    if constexpr (params_bytes<Q> != 0) {
        constexpr auto block_size = static_cast<std::size_t>(Q::block_size);
        std::memcpy(&params, from.params + first / block_size * params_bytes<Q>, params_bytes<Q>);
    }
    return params;
}

/// Calls use(i, value) for i < n, with the decoded value of a section's element `begin` + i. Does not rotate back.
/// Requires `begin` to be a multiple of min(block size, `piece_size`).
template <quantizer Q, class Size, class Use>
void decode_elements(const Q& q, const coded_section& from, std::size_t begin, Size n, Use use) {
    constexpr auto block_size = static_cast<std::size_t>(Q::block_size);
    constexpr std::size_t piece = std::min(piece_size, block_size);
    for_each_piece<piece>(n, [&](std::size_t done, auto some) {
        const std::size_t first = begin + done;
        const typename Q::params params = read_params<Q>(from, first);
        const std::byte* const codes = from.codes + code_bytes<Q>(first);
        const auto each = [&](std::size_t i, std::uint32_t code) { use(done + i, q.decode(code, params)); };
        if constexpr (Q::code_bits == 8) {
            // No copy of the codes: AVX2 loops would load it in larger units than it is stored in, and wait.
            for (std::size_t i = 0; i != some; ++i) each(i, static_cast<std::uint8_t>(codes[i]));
        } else {
            code_word<Q::code_bits> words[piece];
            unpack_codes<Q>(codes, some, words);
            for (std::size_t i = 0; i != some; ++i) each(i, words[i]);
        }
    });
}

ZEROPP_DETAIL_INLINE_END

}  // namespace zeropp::detail
