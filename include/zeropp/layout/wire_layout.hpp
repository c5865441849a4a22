#pragma once
/// \file
/// Layout of a message, [codes][params][padding to 16 bytes], and where one of several tensors lies in it.

#include <zeropp/core/math.hpp>
#include <zeropp/layout/ternary.hpp>
#include <zeropp/quantizer/quantizer.hpp>

#include <cstddef>
#include <type_traits>

namespace zeropp {

/// Where a tensor lies in a message: the numbers of elements and tensors before it. From these, every quantizer finds
/// the tensor's codes and parameters. Default-constructed: the first tensor.
struct message_place {
    /// Number of elements of the preceding tensors, each tensor's rounded up to `alignment`.
    std::size_t elements = 0;
    /// Number of preceding tensors.
    std::size_t tensors = 0;

    /// Tensors begin at multiples of this number of elements. Codes of 4, 8, 16 or 32 bits then begin at multiples of
    /// 16 bytes, the widest access of a GPU thread.
    static constexpr std::size_t alignment = 32;

    /// Where the next tensor lies, if this one has `count` elements.
    constexpr ZEROPP_HOST_DEVICE message_place next(std::size_t count) const {
        return {elements + round_up(count, alignment), tensors + 1};
    }

    /// Number of blocks of `size` elements, a power of two, reserved for the preceding tensors. These tensors have at
    /// most as many blocks. No block spans two tensors, so each tensor's last block may be short.
    constexpr ZEROPP_HOST_DEVICE std::size_t blocks(std::size_t size) const {
        return (elements + tensors * (size > alignment ? size - alignment : 0)) / size;
    }

    friend constexpr bool operator==(const message_place&, const message_place&) = default;
};

/// Number of bytes of one block's parameters in a message.
template <quantizer Q>
inline constexpr std::size_t params_bytes = std::is_empty_v<typename Q::params> ? 0 : sizeof(typename Q::params);

/// Number of bytes of the codes of `n` elements. The codes of a whole block always end on a byte.
template <quantizer Q>
constexpr ZEROPP_HOST_DEVICE std::size_t code_bytes(std::size_t n) {
    if constexpr (ternary_quantizer<Q>) {
        return detail::ternary_bytes(n, detail::ternary_group<Q>);
    } else {
        constexpr auto bits = static_cast<std::size_t>(Q::code_bits);
        return n / 8 * bits + ceil_div(n % 8 * bits, 8);
    }
}

/// Layout of a message: codes of all blocks; the blocks' parameters, aligned for their type; zeros up to a multiple of
/// 16 bytes. Successive messages in a buffer then all begin at multiples of 16 bytes. Each tensor's codes and
/// parameters lie where its message_place says, with zeros between tensors.
template <quantizer Q>
struct wire_layout {
    static constexpr auto block_size = static_cast<std::size_t>(Q::block_size);

    /// Sum of the elements reserved for the preceding tensors and the elements of the last tensor.
    std::size_t elements;
    /// Sum of the blocks reserved for the preceding tensors and the blocks of the last tensor.
    std::size_t blocks;
    /// Offset in bytes, from the message's beginning, of the end of the codes.
    std::size_t codes_end;
    /// Offset in bytes of the blocks' parameters.
    std::size_t params_offset;
    /// Offset in bytes of the end of the parameters.
    std::size_t params_end;
    /// Number of bytes of the whole message.
    std::size_t bytes;

    /// Layout of a message with `n` elements in its last tensor, which lies at `last`.
    constexpr ZEROPP_HOST_DEVICE explicit wire_layout(std::size_t n, const message_place& last = {})
        : elements(last.elements + n), blocks(last.blocks(block_size) + ceil_div(n, block_size)),
          codes_end(codes_at(last) + code_bytes<Q>(n)), params_offset(round_up(codes_end, alignof(typename Q::params))),
          params_end(params_offset + blocks * params_bytes<Q>), bytes(round_up(params_end, 16)) {}

    /// Number of bytes of the codes of all preceding tensors, for which `elements` elements and `blocks` blocks are
    /// reserved.
    static constexpr ZEROPP_HOST_DEVICE std::size_t codes_of(std::size_t elements, std::size_t blocks) {
        // Each tensor begins with a block, and so with a new group of ternary codes.
        return ternary_quantizer<Q> ? code_bytes<Q>(blocks * block_size) : code_bytes<Q>(elements);
    }

    /// Offset in bytes of the codes of the tensor at `place`.
    static constexpr ZEROPP_HOST_DEVICE std::size_t codes_at(const message_place& place) {
        return codes_of(place.elements, place.blocks(block_size));
    }
    /// Offset in bytes of the parameters of the tensor at `place`.
    constexpr ZEROPP_HOST_DEVICE std::size_t params_at(const message_place& place) const {
        return params_offset + place.blocks(block_size) * params_bytes<Q>;
    }
};

/// Number of bytes, equal on every rank, of a message with `n` elements in its last tensor, which lies at `last`.
template <quantizer Q>
constexpr ZEROPP_HOST_DEVICE std::size_t wire_bytes(const Q&, std::size_t n, const message_place& last = {}) {
    return wire_layout<Q>(n, last).bytes;
}

}  // namespace zeropp
