#pragma once
/// \file
/// Layout of messages of exact differences, [index][payloads], and the most bytes that one can have.

#include <zeropp/core/math.hpp>
#include <zeropp/core/text.hpp>
#include <zeropp/layout/wire_format.hpp>
#include <zeropp/layout/wire_layout.hpp>
#include <zeropp/quantizer/quantizer.hpp>

#include <concepts>
#include <cstddef>

namespace zeropp {

/// The code that carries 16-bit elements to the bit, as differences from old elements that the receiver has. The size
/// of a message follows from the elements; `format_of` has the most bytes.
///
/// A message is [index][payloads], in little-endian words of 4 bytes. A tile is 4096 elements of one tensor, or fewer
/// at the end of a shard. The index has one word for each tile: the end of the tile's payload, in words from the end
/// of the index. Every message of a chunk has equally many tiles; tiles without elements have an empty payload.
///
/// A payload is [headers][blocks][zeros up to a whole word]. Blocks have 256 elements, or fewer at the end of a tile. A
/// header is two bytes: the block's `reach` and its number of exceptions. A block is [codes][exceptions].
///   code        z, in w = clamp(reach - e, 0, 14) bits, where e is the exponent field of the old element. z is the
///               zigzag of the difference, modulo 2^16, of the elements' keys. A key is the element's bits as an int16
///               in the order of values: if negative, with all bits but the sign inverted. Codes are packed, the first
///               in the lowest bits, up to a whole byte
///   exception   an element with z >= 2^w, of which the code is 0: its index in the block, 1 byte, and its new bits, 2
///               bytes. Indices rise
/// A block of reach 255 is whole instead: the new bits of its elements, without exceptions.
struct exact_differences {
    /// Number of elements of a block.
    static constexpr std::size_t block_size = 256;
    /// Number of elements of a tile.
    static constexpr std::size_t tile_size = 4096;
    /// Number of bytes of a word.
    static constexpr std::size_t word = 4;
    /// Largest number of bits of a code.
    static constexpr int most_bits = 14;
    /// Reach of a block sent as the bits of its elements.
    static constexpr int whole = 255;
    /// Number of bytes of an exception.
    static constexpr std::size_t exception_bytes = 3;
    /// Most bytes of a message, of which the index can hold the ends of payloads.
    static constexpr std::size_t most_bytes = word * 0xffffffffu;

    static constexpr short_text name() { return "exact"; }
};

/// Sizes of a message of exact differences.
struct exact_layout {
    /// Number of tiles, with tiles reserved for the preceding tensors: the words of the index.
    std::size_t tiles;
    /// Most bytes of the message: a multiple of 16.
    std::size_t bytes;

    /// Layout of a message with `n` elements in its last tensor, which lies at `last`.
    constexpr ZEROPP_HOST_DEVICE explicit exact_layout(std::size_t n, const message_place& last = {})
        : tiles(tile_at(last, 0) + ceil_div(n, exact_differences::tile_size)),
          bytes(round_up(exact_differences::word *
                             (tiles + room_at(last, 0) + ceil_div(n, 2) + ceil_div(n, exact_differences::block_size)),
                         16)) {}

    /// Index of the tile that begins with element `first` of the tensor at `place`.
    static constexpr ZEROPP_HOST_DEVICE std::size_t tile_at(const message_place& place, std::size_t first) {
        return place.blocks(exact_differences::tile_size) + first / exact_differences::tile_size;
    }
    /// Most words of the payloads of all preceding tiles, for a tile that begins with element `first` of the tensor at
    /// `place`. A block has room for a word of header, which includes the tile's zeros.
    static constexpr ZEROPP_HOST_DEVICE std::size_t room_at(const message_place& place, std::size_t first) {
        return (place.elements + first) / 2 + place.blocks(exact_differences::block_size) +
               first / exact_differences::block_size;
    }
};

/// The message_format of exact_differences. Chunks are cut between tiles; `bytes_at` is the most bytes of a message.
template <>
inline constexpr message_format format_of<exact_differences>{
    exact_differences::tile_size,
    [](std::size_t elements, const message_place& last) { return exact_layout(elements, last).bytes; }, true};

/// Type of a format of weight differences: a quantizer, or exact_differences.
template <class Q>
concept difference_format = quantizer<Q> || std::same_as<Q, exact_differences>;

}  // namespace zeropp
