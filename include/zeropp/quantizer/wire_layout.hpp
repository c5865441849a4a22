#pragma once
/// \file
/// Where the parts of a message lie: [codes][params][padding to 16 bytes].

#include <zeropp/core/math.hpp>
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

/// The layout of a message of `n` elements. Codes of all blocks come first, then the parameters of all blocks, aligned
/// for their type, then zeros up to a multiple of 16 bytes.
template <quantizer Q>
struct wire_layout {
    std::size_t elements;
    std::size_t blocks;
    /// Where the parameters begin, in bytes from the start of the message.
    std::size_t params_offset;
    /// The whole message.
    std::size_t bytes;

    constexpr ZEROPP_HOST_DEVICE explicit wire_layout(std::size_t n)
        : elements(n), blocks(ceil_div(n, static_cast<std::size_t>(Q::block_size))),
          params_offset(round_up(code_bytes<Q>(n), alignof(typename Q::params))),
          bytes(round_up(params_offset + blocks * params_bytes<Q>, 16)) {}

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
