#pragma once
/// \file
/// Encodes blocks of floats to codes and parameters on the host, and decodes them.

#include <zeropp/codec/host/pack.hpp>
#include <zeropp/codec/host/share.hpp>
#include <zeropp/codec/host/target.hpp>
#include <zeropp/core/element.hpp>
#include <zeropp/layout/wire_layout.hpp>
#include <zeropp/quantizer/quantizer.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace zeropp::detail {

ZEROPP_DETAIL_INLINE_BEGIN

/// Number of blocks fitted before the first is encoded. Hides the latency of the division.
template <quantizer Q>
inline constexpr std::size_t stretch_blocks = std::max<std::size_t>(1024 / static_cast<std::size_t>(Q::block_size), 1);

/// Elements of a granule, the unit for which noise is made.
inline constexpr std::size_t granule_elements = 8;

/// params[b] <- parameters of block b of n values, by the quantizer's `fit`.
template <quantizer Q, class Size>
void fit_blocks(const Q& q, const float* values, Size n, typename Q::params* params) {
    for_each_piece<static_cast<std::size_t>(Q::block_size)>(n, [&](std::size_t begin, auto some) {
        typename Q::stats stats;
        for (std::size_t i = 0; i != some; ++i) stats.add(values[begin + i]);
        *params++ = q.fit(stats);
    });
}

/// params[b] <- better parameters of block b of n values than the fitted ones. At most `stretch_blocks` blocks.
template <refitting_quantizer Q, class Size>
void refit_blocks(const Q& q, const float* values, Size n, typename Q::params* params) {
    constexpr auto block_size = static_cast<std::size_t>(Q::block_size);
    // All sums before the first refit, so that the latency of one overlaps with others.
    typename Q::sums sums[stretch_blocks<Q>];
    for_each_piece<block_size>(n, [&](std::size_t begin, auto some) {
        const typename Q::params fitted = params[begin / block_size];
        typename Q::sums of_block;
        for (std::size_t i = 0; i != some; ++i) of_block.add(values[begin + i], fitted);
        sums[begin / block_size] = of_block;
    });
    for (std::size_t b = 0; b != ceil_div(n, block_size); ++b) params[b] = q.refit(params[b], sums[b]);
}

/// Identifies elements to encode: index of the first in the whole tensor, and whether they are sums.
struct encoded_elements {
    std::size_t index;
    bool sums;
};

/// Returns p, p[i] being the noise of element `index` + i, for n elements. `noise` needs room for n + 14 floats.
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

/// Addresses of a section's codes and parameters in a message.
template <class Byte>
struct coded {
    Byte* codes;
    Byte* params;

    template <quantizer Q>
    coded(const wire_layout<Q>& layout, const message_place& place, Byte* message)
        : codes(message + layout.codes_at(place)), params(message + layout.params_at(place)) {}
    // Without this, nvcc takes the constructor below for the only copy constructor.
    coded(const coded&) = default;
    /// Converts to addresses of constant bytes.
    coded(const coded<std::remove_const_t<Byte>>& other)
        requires std::is_const_v<Byte>
        : codes(other.codes), params(other.params) {}

    /// The same section of the message that begins `bytes` bytes later.
    coded behind(std::size_t bytes) const {
        coded other = *this;
        other.codes += bytes;
        other.params += bytes;
        return other;
    }
};
using coded_section = coded<const std::byte>;

/// Parameters of the block with element `first`, if Q has any.
template <quantizer Q>
typename Q::params read_params(const coded_section& from, std::size_t first) {
    typename Q::params params;
    if constexpr (params_bytes<Q> != 0) {
        constexpr auto block_size = static_cast<std::size_t>(Q::block_size);
        std::memcpy(&params, from.params + first / block_size * params_bytes<Q>, params_bytes<Q>);
    }
    return params;
}

/// Encodes n values of a section from element `begin` on, which begins a block, with the blocks' fitted `params`. The
/// `encoded_elements` begin with the section.
template <quantizer Q, class Size>
void encode_blocks(const Q& q, typename Q::params* params, const float* values, Size n, encoded_elements what,
                   const coded<std::byte>& to, std::size_t begin) {
    constexpr auto block_size = static_cast<std::size_t>(Q::block_size);
    constexpr std::size_t piece = std::min(piece_size, block_size);
    using word = code_word<Q::code_bits>;
    if constexpr (refitting_quantizer<Q>) refit_blocks(q, values, n, params);
    for_each_piece<piece>(n, [&](std::size_t done, auto some) {
        // A copy stays in registers: written codes could alias the original, if both are bytes.
        const typename Q::params of_block = params[done / block_size];
        const float* const x = values + done;
        word words[piece];
        if constexpr (stochastic_quantizer<Q>) {
            float room[piece_size + 2 * granule_elements];
            const float* const noise = noise_of(q, {what.index + begin + done, what.sums}, some, room);
            for (std::size_t i = 0; i != some; ++i) words[i] = static_cast<word>(q.encode(x[i], of_block, noise[i]));
        } else {
            for (std::size_t i = 0; i != some; ++i) words[i] = static_cast<word>(q.encode(x[i], of_block));
        }
        pack_codes<Q>(words, some, to.codes + code_bytes<Q>(begin + done));
    });
    if constexpr (params_bytes<Q> != 0) {
        std::memcpy(to.params + begin / block_size * params_bytes<Q>, params,
                    ceil_div(n, block_size) * params_bytes<Q>);
    }
}

/// Calls use(i, value) for elements [begin, begin + n) of a section, i counting from 0. Does not rotate back.
/// `begin` is a multiple of the block size or of `piece_size`, whichever is less.
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
            // In place: a copy would be written in pieces smaller than the loads of AVX2 loops.
            for (std::size_t i = 0; i != some; ++i) each(i, static_cast<std::uint8_t>(codes[i]));
        } else {
            code_word<Q::code_bits> words[piece];
            unpack_codes<Q>(codes, some, words);
            for (std::size_t i = 0; i != some; ++i) each(i, words[i]);
        }
    });
}

/// sums <- the sum of elements [begin, begin + n) of a section over `messages` messages, `stride` bytes apart, in
/// order. Not rotated back. `begin` is a multiple of the block size or of `piece_size`, whichever is less.
template <quantizer Q, class Size>
void sum_one_by_one(const Q& q, const coded_section& first, std::size_t stride, std::size_t messages, std::size_t begin,
                    Size n, float* sums) {
    decode_elements(q, first, begin, n, [=](std::size_t i, float x) { sums[i] = x; });
    for (std::size_t m = 1; m < messages; ++m) {
        decode_elements(q, first.behind(m * stride), begin, n, [=](std::size_t i, float x) { sums[i] += x; });
    }
}

ZEROPP_DETAIL_INLINE_END

}  // namespace zeropp::detail
