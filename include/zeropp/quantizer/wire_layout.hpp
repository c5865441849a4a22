#pragma once
/// \file
/// Where the parts of a message lie: [codes][params][the message's scale, if it has one][padding to 16 bytes].

#include <zeropp/core/math.hpp>
#include <zeropp/core/message_place.hpp>
#include <zeropp/quantizer/abilities.hpp>
#include <zeropp/quantizer/quantizer.hpp>

#include <cstddef>
#include <type_traits>

namespace zeropp {

/// Bytes that one block's parameters take in a message.
template <quantizer Q>
inline constexpr std::size_t params_bytes = std::is_empty_v<typename Q::params> ? 0 : sizeof(typename Q::params);

/// Bytes that `n` codes take. A whole block's codes always end on a byte.
template <quantizer Q>
constexpr ZEROPP_HOST_DEVICE std::size_t code_bytes(std::size_t n) {
    constexpr auto bits = static_cast<std::size_t>(Q::code_bits);
    return n / 8 * bits + ceil_div(n % 8 * bits, 8);
}

/// Bytes of the number that scales a whole message.
template <quantizer Q>
inline constexpr std::size_t message_scale_bytes = message_scaled_quantizer<Q> ? sizeof(float) : 0;

/// The layout of a message. Codes of all blocks come first, then the parameters of all blocks, aligned for their type,
/// then the largest finite magnitude if the quantizer wants it, then zeros up to a multiple of 16 bytes. The blocks of
/// a tensor lie together, at the place of its tensor; between tensors there are zeros.
template <quantizer Q>
struct wire_layout {
    static constexpr auto block_size = static_cast<std::size_t>(Q::block_size);

    /// Those of the tensors before the last, as their place counts them, and those of the last.
    std::size_t elements;
    std::size_t blocks;
    /// Where the parameters begin, in bytes from the start of the message.
    std::size_t params_offset;
    /// Where they end, or, aligned, the scale of the whole message begins.
    std::size_t scale_offset;
    /// The whole message.
    std::size_t bytes;

    /// Of a message whose last, or only, tensor has `n` elements, at `last`.
    constexpr ZEROPP_HOST_DEVICE explicit wire_layout(std::size_t n, const message_place& last = {})
        : elements(last.elements + n), blocks(last.blocks(block_size) + ceil_div(n, block_size)),
          params_offset(round_up(code_bytes<Q>(elements), alignof(typename Q::params))),
          scale_offset(
              round_up(params_offset + blocks * params_bytes<Q>, message_scaled_quantizer<Q> ? alignof(float) : 1)),
          bytes(round_up(scale_offset + message_scale_bytes<Q>, 16)) {}

    /// Where the codes of a block begin, from the first of its tensor.
    static constexpr ZEROPP_HOST_DEVICE std::size_t block_offset(std::size_t block) {
        return block * code_bytes<Q>(block_size);
    }

    /// Where codes and parameters of the tensor at `place` begin.
    constexpr ZEROPP_HOST_DEVICE std::size_t codes_at(const message_place& place) const {
        return code_bytes<Q>(place.elements);
    }
    constexpr ZEROPP_HOST_DEVICE std::size_t params_at(const message_place& place) const {
        return params_offset + place.blocks(block_size) * params_bytes<Q>;
    }
};

/// The size of a message of `n` elements, or whose last tensor has `n` at `last`: the same on every rank, known without
/// communication.
template <quantizer Q>
constexpr ZEROPP_HOST_DEVICE std::size_t wire_bytes(const Q&, std::size_t n, const message_place& last = {}) {
    return wire_layout<Q>(n, last).bytes;
}

}  // namespace zeropp
