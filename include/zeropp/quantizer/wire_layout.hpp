#pragma once
/// \file
/// Where the parts of a message lie: [codes][params][the message's scale, if it has one][padding to 16 bytes].

#include <zeropp/core/math.hpp>
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

/// The layout of a message of `n` elements. Codes of all blocks come first, then the parameters of all blocks, aligned
/// for their type, then the largest finite magnitude if the quantizer wants it, then zeros up to a multiple of 16 bytes.
template <quantizer Q>
struct wire_layout {
    std::size_t elements;
    std::size_t blocks;
    /// Where the parameters begin, in bytes from the start of the message.
    std::size_t params_offset;
    /// Where they end, or, aligned, the scale of the whole message begins.
    std::size_t scale_offset;
    /// The whole message.
    std::size_t bytes;

    constexpr ZEROPP_HOST_DEVICE explicit wire_layout(std::size_t n)
        : elements(n), blocks(ceil_div(n, static_cast<std::size_t>(Q::block_size))),
          params_offset(round_up(code_bytes<Q>(n), alignof(typename Q::params))),
          scale_offset(
              round_up(params_offset + blocks * params_bytes<Q>, message_scaled_quantizer<Q> ? alignof(float) : 1)),
          bytes(round_up(scale_offset + message_scale_bytes<Q>, 16)) {}

    /// Where the codes of a block begin.
    static constexpr ZEROPP_HOST_DEVICE std::size_t block_offset(std::size_t block) {
        return block * code_bytes<Q>(static_cast<std::size_t>(Q::block_size));
    }
};

/// The size of a message of `n` elements: the same on every rank, known without communication.
template <quantizer Q>
constexpr ZEROPP_HOST_DEVICE std::size_t wire_bytes(const Q&, std::size_t n) {
    return wire_layout<Q>(n).bytes;
}

}  // namespace zeropp
