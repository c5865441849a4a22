#pragma once
/// \file
/// A plan's view of a quantizer: the sizes of its messages.

#include <zeropp/core/text.hpp>
#include <zeropp/layout/wire_layout.hpp>

#include <cstddef>
#include <type_traits>

namespace zeropp {

/// Message sizes of a quantizer that is chosen at run time. A value, made by `wire_format_of`.
struct wire_format {
    short_text name;
    std::size_t block_size;
    int code_bits;
    /// True for codes of 16 bits and more without parameters: native collectives move such elements without a codec.
    bool plain;
    /// Bytes of a message of `elements` elements.
    std::size_t (*bytes)(std::size_t elements);
};

/// The format of `q`. Sizes depend on the type Q alone, not on values such as a seed.
template <quantizer Q>
wire_format wire_format_of(const Q& q) {
    return {q.name(), static_cast<std::size_t>(Q::block_size), Q::code_bits,
            Q::code_bits >= 16 && std::is_empty_v<typename Q::params>,
            [](std::size_t elements) { return wire_layout<Q>(elements).bytes; }};
}

}  // namespace zeropp
