#pragma once
/// \file
/// What a plan knows of a quantizer: how large its messages are.

#include <zeropp/core/text.hpp>
#include <zeropp/quantizer/wire_layout.hpp>

#include <cstddef>
#include <type_traits>

namespace zeropp {

/// The messages of a quantizer, chosen at run time. A value; `wire_format_of` makes one of any quantizer.
struct wire_format {
    short_text name;
    std::size_t block_size;
    int code_bits;
    /// Whether elements travel as they are, as native collectives move them too, without a codec.
    bool plain;
    /// The size of a message of so many elements, in bytes.
    std::size_t (*bytes)(std::size_t elements);
};

/// What plans know of q. Its messages are those of Q's whole type: a seed, or another value that q holds, does not
/// change their size.
template <quantizer Q>
wire_format wire_format_of(const Q& q) {
    return {q.name(), static_cast<std::size_t>(Q::block_size), Q::code_bits,
            Q::code_bits >= 16 && std::is_empty_v<typename Q::params>,
            [](std::size_t elements) { return wire_layout<Q>(elements).bytes; }};
}

}  // namespace zeropp
