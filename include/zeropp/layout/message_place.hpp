#pragma once
/// \file
/// Place of one tensor's elements in a message that carries several tensors.

#include <zeropp/core/math.hpp>

#include <cstddef>

namespace zeropp {

/// The place of a tensor in a message: numbers of elements and tensors before it. They locate codes and parameters for
/// every quantizer. Default-constructed: the first tensor.
struct message_place {
    /// Number of elements of the preceding tensors, each tensor's rounded up to `alignment`.
    std::size_t elements = 0;
    /// Number of preceding tensors.
    std::size_t tensors = 0;

    /// Tensors begin at multiples of this number of elements. Codes of 4, 8, 16 or 32 bits then begin at multiples of
    /// 16 bytes.
    static constexpr std::size_t alignment = 32;

    /// The place after a tensor of `count` elements at this place.
    constexpr ZEROPP_HOST_DEVICE message_place next(std::size_t count) const {
        return {elements + round_up(count, alignment), tensors + 1};
    }

    /// Number of blocks of `size` elements, a power of two, reserved for the preceding tensors; at least their actual
    /// number. No block spans two tensors, so the last of each may be short.
    constexpr ZEROPP_HOST_DEVICE std::size_t blocks(std::size_t size) const {
        return (elements + tensors * (size > alignment ? size - alignment : 0)) / size;
    }

    friend constexpr bool operator==(const message_place&, const message_place&) = default;
};

}  // namespace zeropp
