#pragma once
/// \file
/// Where the elements of one tensor lie in a message that carries several.

#include <zeropp/core/math.hpp>

#include <cstddef>

namespace zeropp {

/// What lies in a message before the elements of one of its tensors. By itself it says where their codes and parameters
/// are, for every quantizer. Default-constructed: the first tensor.
struct message_place {
    /// Elements of the tensors before, each tensor's rounded up to `alignment`.
    std::size_t elements = 0;
    /// How many tensors that are.
    std::size_t tensors = 0;

    /// Tensors begin at multiples of so many elements: their codes, of 4 bits and more, at multiples of 16 bytes.
    static constexpr std::size_t alignment = 32;

    /// The place behind `count` elements at this one.
    constexpr ZEROPP_HOST_DEVICE message_place next(std::size_t count) const {
        return {elements + round_up(count, alignment), tensors + 1};
    }

    /// How many blocks of `size` elements, a power of two, there is room for before. Blocks never span two tensors: the
    /// last one of each may be cut short, by a multiple of `alignment` as elements count. May be more than there are
    /// blocks.
    constexpr ZEROPP_HOST_DEVICE std::size_t blocks(std::size_t size) const {
        return (elements + tensors * (size > alignment ? size - alignment : 0)) / size;
    }

    friend constexpr bool operator==(const message_place&, const message_place&) = default;
};

}  // namespace zeropp
