#pragma once
/// \file
/// Blocks on the host: elements as floats in, codes and parameters out, and back.

#include <zeropp/codec/host/pack.hpp>
#include <zeropp/codec/host/rotation.hpp>
#include <zeropp/codec/host/table.hpp>
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

/// Values are handled in pieces that stay in the first-level cache. A multiple of 8, so that pieces end on bytes.
inline constexpr std::size_t piece_size = 256;

/// Several blocks are fitted before the first is encoded, so that one does not wait for the divisions of another: so
/// many.
template <quantizer Q>
inline constexpr std::size_t stretch_blocks = std::max<std::size_t>(1024 / static_cast<std::size_t>(Q::block_size), 1);

/// The elements of a granule, whose noise is made at once.
inline constexpr std::size_t granule_elements = 8;

/// A number of elements that is a multiple of `Unit`, by its type.
template <std::size_t Unit>
struct multiple_of {
    std::size_t value;

    constexpr operator std::size_t() const { return value; }
};

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
template <std::size_t Piece, std::size_t Unit, class F>
void for_each_piece(multiple_of<Unit> size, const F& f) {
    if constexpr (Piece <= Unit) {
        static_assert(Unit % Piece == 0);
        for (std::size_t begin = 0; begin != size; begin += Piece) {
            f(begin, std::integral_constant<std::size_t, Piece>());
        }
    } else {
        static_assert(Piece % Unit == 0);
        for (std::size_t begin = 0; begin != size;) {
            const multiple_of<Unit> some{std::min(Piece, size - begin)};
            f(begin, some);
            begin += some;
        }
    }
}

/// The outermost of such loops: in pieces of no more than `Piece`, the whole units with the instructions of the
/// processor at hand, and what is left over, which is little, without the code size of that. The baseline of a
/// processor that may have wider instructions shares the code of what is left over.
template <std::size_t Piece, std::size_t Unit, class F>
void for_each_piece_on_target(std::size_t size, const F& f) {
    std::size_t begin = 0;
    const auto whole_units = [&] {
        for_each_piece<Piece>(multiple_of<Unit>{size / Unit * Unit}, f);
        begin = size / Unit * Unit;
    };
    if constexpr (!has_wide_targets) {
        whole_units();
    } else if (size >= Unit && active_host_target() != host_target::baseline) {
        run_on_target(active_host_target(), whole_units);
    }
    for (; begin != size; begin += std::min(Piece, size - begin)) f(begin, std::min(Piece, size - begin));
}

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
        code_word<Q::code_bits> words[piece];
        unpack<Q::code_bits>(from.codes + code_bytes<Q>(first), some, words);
        for (std::size_t i = 0; i != some; ++i) {
            use(done + i, decode_element(q, words[i], params, position + static_cast<std::uint32_t>(i)));
        }
    });
}

/// Whether to <- elements [begin, begin + n) of a section has been done, through a table for each block: for four bits
/// that say all of an element, and elements of two bytes, by targets that can, for whole pieces. Requires begin to be a
/// multiple of `piece_size`.
template <quantizer Q, element T, class Size>
bool decode_by_table([[maybe_unused]] const Q& q, [[maybe_unused]] const coded_section& from,
                     [[maybe_unused]] std::size_t begin, [[maybe_unused]] Size n, [[maybe_unused]] T* to) {
#if ZEROPP_DETAIL_HAS_LOOK_UP
    constexpr auto block_size = static_cast<std::size_t>(Q::block_size);
    constexpr bool whole_piece = requires { Size::value; };
    constexpr bool code_says_all = !positional_quantizer<Q> && !rotating_quantizer<Q>;
    if constexpr (whole_piece && code_says_all && Q::code_bits == 4 && sizeof(T) == 2 && block_size % 32 == 0) {
        if (!look_up_available()) return false;
        for_each_piece<block_size>(n, [&](std::size_t done, auto some) {
            const typename Q::params params = read_params<Q>(from, begin + done);
            float values[16];
            for (std::uint32_t code = 0; code != 16; ++code) values[code] = q.decode(code, params);
            code_table<T> table;
            for (std::size_t code = 0; code != 16; ++code) {
                table.elements[code] = element_traits<T>::from_float(values[code]);
            }
            look_up(table, from.codes + code_bytes<Q>(begin + done), some, to + done);
        });
        return true;
    }
#endif
    return false;
}

/// sums <- the sum of elements [begin, begin + n) of a section in `contributors` messages, `stride` bytes apart: in
/// order and, if Q rotates, rotated back at the end.
template <quantizer Q, class Size>
void sum_elements(const Q& q, const coded_section& first, std::size_t stride, int contributors, std::size_t begin,
                  Size n, float* sums) {
    for_each_piece<piece_size>(n, [&](std::size_t done, auto some) {
        float* const sum = sums + done;
        decode_elements(quantizer_of(q, first), first, begin + done, some, [=](std::size_t i, float x) { sum[i] = x; });
        for (int c = 1; c < contributors; ++c) {
            const coded_section next = first.behind(static_cast<std::size_t>(c) * stride);
            decode_elements(quantizer_of(q, next), next, begin + done, some,
                            [=](std::size_t i, float x) { sum[i] += x; });
        }
        rotate<Q>(sum, some, true);
    });
}

}  // namespace zeropp::detail
