#pragma once
/// \file
/// Sizes of messages in formats that are chosen at run time.

#include <zeropp/core/text.hpp>
#include <zeropp/layout/wire_layout.hpp>
#include <zeropp/quantizer/quantizer.hpp>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <type_traits>

namespace zeropp {

/// Message sizes of a quantizer that is chosen at run time. A value, made by `wire_format_of`.
struct wire_format {
    short_text name;
    std::size_t block_size;
    /// Bits of a code, on average over a block.
    double code_bits;
    /// True for codes of 16 bits and more without parameters: native collectives move such elements without a codec.
    bool plain;
    /// Bytes of a message of `elements` elements.
    std::size_t (*bytes)(std::size_t elements);
};

/// The format of `q`. Sizes depend on the type Q alone, not on values such as a seed.
template <quantizer Q>
wire_format wire_format_of(const Q& q) {
    constexpr auto block_size = static_cast<std::size_t>(Q::block_size);
    return {q.name(), block_size, 8.0 * static_cast<double>(code_bytes<Q>(block_size)) / Q::block_size,
            Q::code_bits >= 16 && std::is_empty_v<typename Q::params>,
            [](std::size_t elements) { return wire_layout<Q>(elements).bytes; }};
}

/// Formats of messages along each level: within the node, between nodes and, for three levels, between sites; there
/// the second one if it is left out.
struct level_formats {
    wire_format intra_node;
    wire_format inter_node;
    std::optional<wire_format> inter_site = std::nullopt;

    /// The format of a level.
    const wire_format& at(int level) const {
        return level == 0 ? intra_node : level == 1 || !inter_site ? inter_node : *inter_site;
    }
    /// Elements of the largest block.
    std::size_t largest_block() const {
        return std::max({intra_node.block_size, inter_node.block_size, inter_site ? inter_site->block_size : 1});
    }
};

}  // namespace zeropp
