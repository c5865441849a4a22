#pragma once
/// \file
/// One message on the host: elements as floats in, bytes out, and back.

#include <zeropp/codec/codec.hpp>
#include <zeropp/codec/host_rotation.hpp>
#include <zeropp/codec/host_table.hpp>
#include <zeropp/codec/host_target.hpp>
#include <zeropp/codec/pack.hpp>
#include <zeropp/core/element.hpp>
#include <zeropp/quantizer/abilities.hpp>
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

/// Several blocks are fitted before the first is encoded, so that one does not wait for the divisions of another: so
/// many.
template <quantizer Q>
inline constexpr std::size_t stretch_blocks = std::max<std::size_t>(1024 / static_cast<std::size_t>(Q::block_size), 1);

/// The elements of a granule, whose noise is made at once.
inline constexpr std::size_t granule_elements = 8;

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
/// which is little, without the code size of that. The baseline of a processor that may have wider instructions shares
/// the code of what is left over.
template <std::size_t Piece, class F>
void for_each_piece_on_target(std::size_t size, const F& f) {
    std::size_t begin = 0;
    const auto whole_pieces = [&] {
        for (; size - begin >= Piece; begin += Piece) f(begin, std::integral_constant<std::size_t, Piece>());
    };
    if constexpr (!has_wide_targets) {
        whole_pieces();
    } else if (size >= Piece && active_host_target() != host_target::baseline) {
        run_on_target(active_host_target(), whole_pieces);
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

/// The quantizer of one message, whose scale it holds, if messages of Q have one.
template <quantizer Q>
Q quantizer_of(const Q& q, const wire_layout<Q>& layout, const std::byte* message) {
    if constexpr (message_scaled_quantizer<Q>) {
        float absmax;
        std::memcpy(&absmax, message + layout.scale_offset, sizeof absmax);
        return q.scaled_for(absmax);
    } else {
        return q;
    }
}

/// The parameters of the block with element `first`, where the quantizer has any.
template <quantizer Q>
typename Q::params read_params(const wire_layout<Q>& layout, const std::byte* message, std::size_t first) {
    typename Q::params params;
    if constexpr (params_bytes<Q> != 0) {
        constexpr auto block_size = static_cast<std::size_t>(Q::block_size);
        std::memcpy(&params, message + layout.params_offset + first / block_size * params_bytes<Q>, params_bytes<Q>);
    }
    return params;
}

/// use(i, value) for each of elements [begin, begin + n) of a message, i counting from 0; rotated, if Q rotates. `q` is
/// the message's own. Requires begin to be a multiple of the block's size or `piece_size`, whichever is less.
template <quantizer Q, class Size, class Use>
void decode_elements(const Q& q, const wire_layout<Q>& layout, const std::byte* message, std::size_t begin, Size n,
                     Use use) {
    constexpr auto block_size = static_cast<std::size_t>(Q::block_size);
    constexpr std::size_t piece = std::min(piece_size, block_size);
    for_each_piece<piece>(n, [&](std::size_t done, auto some) {
        const std::size_t first = begin + done;
        const typename Q::params params = read_params(layout, message, first);
        const auto position = static_cast<std::uint32_t>(first % block_size);
        code_word<Q::code_bits> words[piece];
        unpack<Q::code_bits>(message + code_bytes<Q>(first), some, words);
        for (std::size_t i = 0; i != some; ++i) {
            use(done + i, decode_element(q, words[i], params, position + static_cast<std::uint32_t>(i)));
        }
    });
}

/// Whether to <- elements [begin, begin + n) of a message has been done, through a table for each block: for four bits
/// that say all of an element, and elements of two bytes, by targets that can, for whole pieces. Requires begin to be a
/// multiple of `piece_size`.
template <quantizer Q, element T, class Size>
bool decode_by_table([[maybe_unused]] const Q& q, [[maybe_unused]] const wire_layout<Q>& layout,
                     [[maybe_unused]] const std::byte* message, [[maybe_unused]] std::size_t begin,
                     [[maybe_unused]] Size n, [[maybe_unused]] T* to) {
#if ZEROPP_DETAIL_HAS_LOOK_UP
    constexpr auto block_size = static_cast<std::size_t>(Q::block_size);
    constexpr bool whole_piece = requires { Size::value; };
    constexpr bool code_says_all = !positional_quantizer<Q> && !rotating_quantizer<Q>;
    if constexpr (whole_piece && code_says_all && Q::code_bits == 4 && sizeof(T) == 2 && block_size % 32 == 0) {
        if (!look_up_available()) return false;
        for_each_piece<block_size>(n, [&](std::size_t done, auto some) {
            const typename Q::params params = read_params(layout, message, begin + done);
            float values[16];
            for (std::uint32_t code = 0; code != 16; ++code) values[code] = q.decode(code, params);
            code_table<T> table;
            for (std::size_t code = 0; code != 16; ++code) {
                table.elements[code] = element_traits<T>::from_float(values[code]);
            }
            look_up(table, message + code_bytes<Q>(begin + done), some, to + done);
        });
        return true;
    }
#endif
    return false;
}

/// sums <- the sum, in order and, if Q rotates, rotated back at the end, of elements [begin, begin + n) of `contributors` messages, `stride` bytes apart.
template <quantizer Q, class Size>
void sum_elements(const Q& q, const wire_layout<Q>& layout, const std::byte* messages, std::size_t stride,
                  int contributors, std::size_t begin, Size n, float* sums) {
    for_each_piece<piece_size>(n, [&](std::size_t done, auto some) {
        float* const sum = sums + done;
        decode_elements(quantizer_of(q, layout, messages), layout, messages, begin + done, some,
                        [=](std::size_t i, float x) { sum[i] = x; });
        for (int c = 1; c < contributors; ++c) {
            const std::byte* const message = messages + static_cast<std::size_t>(c) * stride;
            decode_elements(quantizer_of(q, layout, message), layout, message, begin + done, some,
                            [=](std::size_t i, float x) { sum[i] += x; });
        }
        rotate<Q>(sum, some, true);
    });
}

/// The residuals of one slot for `encode_message`: of a message that carries elements [begin, ...) of the slice whose
/// residuals these are.
template <class Feedback>
class slot_residuals;

template <>
class slot_residuals<no_feedback> {
public:
    static constexpr bool any = false;
};

template <quantizer Storage>
class slot_residuals<feedback<Storage>> {
public:
    static constexpr bool any = true;
    /// Elements that are kept together.
    static constexpr auto block_size = static_cast<std::size_t>(Storage::block_size);

    slot_residuals(const feedback<Storage>& f, int slot, std::size_t begin)
        : feedback_(f), layout_(f.slice), begin_(begin), offset_(static_cast<std::size_t>(slot) * layout_.bytes) {}

    /// values[i] += the residual of element `begin` + i.
    template <class Size>
    void add(std::size_t begin, Size n, float* values) const {
        if (feedback_.held == nullptr) return;
        decode_elements(feedback_.storage, layout_, feedback_.held + offset_, begin_ + begin, n,
                        [&](std::size_t i, float x) { values[i] += product(x, feedback_.rescale); });
    }

    /// Keeps the new residuals, of `errors`. Changes `errors`.
    template <class Size>
    void keep(std::size_t begin, Size n, float* errors) const {
        for_each_piece<piece_size>(n, [&](std::size_t done, auto some) {
            const std::size_t first = begin_ + begin + done;
            float* const error = errors + done;
            float old[piece_size] = {};
            if (feedback_.held != nullptr) {
                decode_elements(feedback_.storage, layout_, feedback_.held + offset_, first, some,
                                [&](std::size_t i, float x) { old[i] = product(x, feedback_.rescale); });
            }
            for (std::size_t i = 0; i != some; ++i) error[i] = next_residual(old[i], error[i], feedback_.decay);
        });
        for_each_piece<stretch_blocks<Storage> * block_size>(n, [&](std::size_t done, auto some) {
            const std::size_t first = begin_ + begin + done;
            std::byte* const message = feedback_.kept + offset_;
            typename Storage::params params[stretch_blocks<Storage>];
            fit_blocks(feedback_.storage, errors + done, some, params);
            encode_blocks(feedback_.storage, params, errors + done, some, {first, false},
                          message + code_bytes<Storage>(first));
            if constexpr (params_bytes<Storage> != 0) {
                std::memcpy(message + layout_.params_offset + first / block_size * params_bytes<Storage>, params,
                            ceil_div(some, block_size) * params_bytes<Storage>);
            }
        });
    }

private:
    feedback<Storage> feedback_;
    wire_layout<Storage> layout_;
    std::size_t begin_;
    std::size_t offset_;
};

/// Encodes `valid` elements into a message laid out for `layout.elements`; everything without an element is zero.
/// load(begin, n, buffer) returns elements [begin, begin + n) as floats: where they are, or in `buffer`, but for all
/// elements of the message the same; twice where messages have a scale. `what` is the first of them.
template <quantizer Q, class Load, class Residuals>
void encode_message(const Q& q, const wire_layout<Q>& layout, std::size_t valid, encoded_elements what, Load load,
                    const Residuals& residuals, std::byte* message) {
    constexpr auto block_size = static_cast<std::size_t>(Q::block_size);
    constexpr std::size_t stretch = stretch_blocks<Q> * block_size;
    constexpr std::size_t piece = std::max(block_size, piece_size);
    // What the message encodes: elements, rotated, with what was lost of them before.
    const auto prepare = [&](std::size_t begin, auto n, float* buffer) -> const float* {
        const float* const values = load(begin, n, buffer);
        if constexpr (rotating_quantizer<Q> || Residuals::any) {
            if (values != buffer) std::memcpy(buffer, values, n * sizeof(float));
            rotate<Q>(buffer, n, false);
            if constexpr (Residuals::any) residuals.add(begin, n, buffer);
            return buffer;
        } else {
            return values;
        }
    };
    if constexpr (Residuals::any) {
        static_assert(Residuals::block_size <= std::max<std::size_t>(block_size, 1024),
                      "feedback: the blocks of Storage must not be larger than 1024 elements or the quantizer's");
    }
    float buffer[stretch];
    if constexpr (message_scaled_quantizer<Q>) {
        std::uint32_t absmax = 0;
        for_each_piece_on_target<stretch>(valid, [&](std::size_t begin, auto n) {
            const float* const values = prepare(begin, n, buffer);
            for (std::size_t i = 0; i != n; ++i) absmax = take_magnitude(absmax, values[i]);
        });
        std::memcpy(message + layout.scale_offset, &absmax, sizeof absmax);
    }
    const Q scaled = quantizer_of(q, layout, message);
    std::array<typename Q::params, stretch_blocks<Q>> params;
    std::byte* params_end = message + layout.params_offset;
    for_each_piece_on_target<stretch>(valid, [&](std::size_t begin, auto n) {
        // Loaded and fitted by pieces, which compilers merge into one pass: it reads the memory while it computes.
        const float* values = nullptr;
        for_each_piece<piece>(n, [&](std::size_t done, auto some) {
            const float* const prepared = prepare(begin + done, some, buffer + done);
            fit_blocks(scaled, prepared, some, params.data() + done / block_size);
            if (done == 0) values = prepared;
        });
        encode_blocks(scaled, params.data(), values, n, {what.index + begin, what.sums},
                      message + code_bytes<Q>(begin));
        if constexpr (params_bytes<Q> != 0) {
            const std::size_t bytes = ceil_div(n, block_size) * params_bytes<Q>;
            std::memcpy(params_end, params.data(), bytes);
            params_end += bytes;
        }
        if constexpr (Residuals::any) {
            decode_elements(scaled, layout, message, begin, n, [&](std::size_t i, float x) { buffer[i] -= x; });
            residuals.keep(begin, n, buffer);
        }
    });
    std::byte* const codes_end = message + code_bytes<Q>(valid);
    std::fill(codes_end, message + layout.params_offset, std::byte{0});
    std::fill(params_end, message + layout.scale_offset, std::byte{0});
    std::fill(message + layout.scale_offset + message_scale_bytes<Q>, message + layout.bytes, std::byte{0});
}

}  // namespace zeropp::detail
