#pragma once
/// \file
/// Sizes of messages in formats that are chosen at run time.

#include <zeropp/core/text.hpp>
#include <zeropp/layout/wire_layout.hpp>
#include <zeropp/quantizer/quantizer.hpp>

#include <array>
#include <cstddef>
#include <optional>
#include <type_traits>

namespace zeropp {

/// Function and block size that give the sizes of messages in one format.
struct message_format {
    /// Number of elements of a block.
    std::size_t block_size;
    /// Function that returns the bytes of a message, from the number of elements and the place of the message's last
    /// tensor.
    std::size_t (*bytes_at)(std::size_t elements, const message_place& last);
    /// True if a message has as many bytes as its elements need. `bytes_at` then returns the most bytes.
    bool varies = false;

    /// Number of bytes of a message of one tensor, with `elements` elements.
    std::size_t bytes(std::size_t elements) const { return bytes_at(elements, {}); }
    /// Number of bytes of each message of `tensors`: of whole shards if `tensors` is a division, of one chunk if it is
    /// slices.
    template <class Tensors>
    std::size_t bytes_of(const Tensors& tensors) const {
        return bytes_at(tensors.last_count(), tensors.last());
    }
};

/// The message_format of Q, a quantizer or exact_differences: sizes of its messages.
template <class Q>
inline constexpr message_format format_of{Q::block_size, [](std::size_t elements, const message_place& last) {
                                              return wire_layout<Q>(elements, last).bytes;
                                          }};

/// Message sizes of a quantizer that is chosen at run time. A value, made by `wire_format_of`.
struct wire_format : message_format {
    /// Name of the quantizer.
    short_text name;
    /// Number of bits of a code, averaged over a block. If sizes vary, of a message for each element, as expected.
    double code_bits;
    /// True for codes of 16 bits and more without parameters: MPI and NCCL move such elements without a codec.
    bool plain;
};

/// The format of `q`. Sizes depend on the type Q alone, not on values such as a seed.
template <quantizer Q>
wire_format wire_format_of(const Q& q) {
    constexpr std::size_t block_size = format_of<Q>.block_size;
    return {format_of<Q>, q.name(), 8.0 * static_cast<double>(code_bytes<Q>(block_size)) / Q::block_size,
            Q::code_bits >= 16 && std::is_empty_v<typename Q::params>};
}

/// Formats of messages along each level: within the node, between nodes and, for three levels, between sites. Without
/// `inter_site`, messages between sites have the format `inter_node`.
struct level_formats {
    wire_format intra_node;
    wire_format inter_node;
    std::optional<wire_format> inter_site = std::nullopt;

    /// The format along `level`.
    const wire_format& at(int level) const {
        return level == 0 ? intra_node : level == 1 || !inter_site ? inter_node : *inter_site;
    }
    /// The formats of three levels.
    std::array<message_format, 3> by_level() const { return {at(0), at(1), at(2)}; }
};

}  // namespace zeropp
