#pragma once
/// \file
/// How many bytes the collectives send, known before any is sent.

#include <zeropp/core/error.hpp>
#include <zeropp/plan/wire_format.hpp>
#include <zeropp/topology/chunking.hpp>
#include <zeropp/topology/hop_sizes.hpp>
#include <zeropp/topology/partition.hpp>
#include <zeropp/topology/slice_owners.hpp>
#include <zeropp/topology/topology.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace zeropp {

/// Bytes that a rank sends to other ranks of its node, and to ranks of other nodes. Every rank sends the same; times
/// group_size() it is what a node sends, times size() what all ranks do. What `counting` counts is this, to the byte.
struct volume {
    std::uint64_t inside = 0;
    std::uint64_t across = 0;

    constexpr volume& operator+=(const volume& other) {
        inside += other.inside;
        across += other.across;
        return *this;
    }
    friend constexpr volume operator+(volume a, const volume& b) { return a += b; }
    friend constexpr volume operator*(const volume& a, std::uint64_t times) {
        return {a.inside * times, a.across * times};
    }
    friend bool operator==(const volume&, const volume&) = default;
};

/// Bytes of one rank's messages, one for each chunk, of a slice that is cut like this.
inline std::uint64_t message_bytes(const chunking& cut, const wire_format& format) {
    if (cut.chunks == 0) return 0;
    return (cut.chunks - 1) * format.bytes(cut.chunk) + format.bytes(cut.count(cut.chunks - 1));
}

namespace detail {
/// A tensor's slices in so many chunks, or, if `automatic`, in as many as a pipeline takes; `across` is the format of
/// the messages between nodes.
template <topology Topology>
chunking planned_chunks(const Topology& ranks, const wire_format& across, std::size_t elements, int chunks,
                        std::size_t block) {
    static_assert(!std::same_as<Topology, slice_owners>, "plans are of topologies whose ranks all own slices");
    const std::size_t slice = partition(elements, ranks.size()).slice_size();
    return {slice, chunks_for(chunks, ranks, across.bytes(slice), true), block};
}
}  // namespace detail

/// What a rank sends in quantized_update_gather of a tensor of `elements`, its differences in one format and what nodes
/// keep gathered in another: its own differences to its counterparts, then what it keeps to its node.
template <topology Topology>
volume update_gather_volume(const Topology& ranks, const wire_format& differences, const wire_format& kept_as,
                            std::size_t elements, int chunks = 1) {
    const chunking cut = detail::planned_chunks(ranks, differences, elements, chunks,
                                                std::max(differences.block_size, kept_as.block_size));
    const auto groups = static_cast<std::uint64_t>(ranks.groups());
    const auto group_size = static_cast<std::uint64_t>(ranks.group_size());
    return {.inside = (group_size - 1) * groups * message_bytes(cut, kept_as),
            .across = (groups - 1) * message_bytes(cut, differences)};
}

/// What a rank sends in quantized_all_gather of a tensor of `elements` in so many chunks, or `automatic`: its own
/// messages to its counterparts, then the messages of its index to its node.
template <topology Topology>
volume all_gather_volume(const Topology& ranks, const wire_format& format, std::size_t elements, int chunks = 1) {
    return update_gather_volume(ranks, format, format, elements, chunks);
}

/// What a rank sends in secondary_partition_gather of what quantized_update has brought up to date.
template <topology Topology>
volume replica_gather_volume(const Topology& ranks, const wire_format& kept_as, std::size_t elements) {
    volume v = all_gather_volume(ranks, kept_as, elements);
    v.across = 0;
    return v;
}

/// What a rank sends in hierarchical_quantized_reduce_scatter of a tensor of `elements` in so many chunks: to each rank
/// of its node the slices of that index, then to each counterpart its slice, once more for each chunk.
template <topology Topology>
volume reduce_scatter_volume(const Topology& ranks, const wire_format& inside, const wire_format& across,
                             std::size_t elements, int chunks = 1) {
    const chunking cut =
        detail::planned_chunks(ranks, across, elements, chunks, std::max(inside.block_size, across.block_size));
    const auto groups = static_cast<std::uint64_t>(ranks.groups());
    const auto group_size = static_cast<std::uint64_t>(ranks.group_size());
    return {.inside = (group_size - 1) * groups * message_bytes(cut, inside),
            .across = (groups - 1) * message_bytes(cut, across)};
}

/// What a rank sends in quantized_all_reduce of a tensor of `elements` in so many chunks, or `automatic`, on the route
/// that its size takes: out as a reduce-scatter and back as an all-gather, or all of its tensor to everybody.
template <topology Topology>
volume all_reduce_volume(const Topology& ranks, const wire_format& inside, const wire_format& across,
                         const wire_format& back, std::size_t elements, int chunks = automatic) {
    if (elements == 0) return {};
    const auto groups = static_cast<std::uint64_t>(ranks.groups());
    const auto group_size = static_cast<std::uint64_t>(ranks.group_size());
    const auto gathered = [&](std::uint64_t bytes) -> volume {
        return {.inside = (group_size - 1) * groups * bytes, .across = (groups - 1) * bytes};
    };
    const std::size_t slice = partition(elements, ranks.size()).slice_size();
    const std::uint64_t whole =
        static_cast<std::uint64_t>(ranks.size()) * (has_hop_inside(ranks) ? inside.bytes(slice) : across.bytes(slice));
    if (sums_everywhere(ranks.size(), whole)) return gathered(whole);
    const chunking cut = detail::planned_chunks(ranks, across, elements, chunks,
                                                std::max({inside.block_size, across.block_size, back.block_size}));
    return volume{.inside = (group_size - 1) * groups * message_bytes(cut, inside),
                  .across = (groups - 1) * message_bytes(cut, across)} +
           gathered(message_bytes(cut, back));
}

/// The peers of a rank in a secondary group of `group_size` consecutive ranks: how many are on its node, and how many
/// are not. Requires nodes of consecutive ranks. Throws precondition_error unless groups divide the ranks and are whole
/// parts of nodes or whole nodes, so that all ranks have the same number of either.
struct secondary_peers {
    int inside;
    int across;

    template <topology Topology>
    secondary_peers(const Topology& ranks, int group_size) {
        const int of_node = ranks.group_size();
        if (group_size < 1 || ranks.size() % group_size != 0 ||
            (of_node % group_size != 0 && group_size % of_node != 0)) {
            throw precondition_error("secondary group size",
                                     "a divisor of the " + std::to_string(ranks.size()) +
                                         " ranks that divides the node's " + std::to_string(of_node) +
                                         " or is a multiple of them",
                                     std::to_string(group_size));
        }
        inside = std::min(group_size, of_node) - 1;
        across = group_size - 1 - inside;
    }
};

/// What a rank sends in secondary_partition_gather of a tensor of `elements`, in groups of `group_size` consecutive
/// ranks: its message to each of the group. Throws as `secondary_peers`.
template <topology Topology>
volume secondary_gather_volume(const Topology& ranks, int group_size, const wire_format& stored_as,
                               std::size_t elements) {
    const secondary_peers peers(ranks, group_size);
    if (elements == 0) return {};
    const std::uint64_t message = stored_as.bytes(partition(elements, group_size).slice_size());
    return {.inside = static_cast<std::uint64_t>(peers.inside) * message,
            .across = static_cast<std::uint64_t>(peers.across) * message};
}

/// hpZ: a second copy of the weights, divided over groups of so many ranks.
struct secondary_options {
    int group_size;
    wire_format stored_as;
};

/// How a training step of ZeRO stage 3 communicates. ZeRO-3 itself is `lossless` formats and no secondary partition;
/// qwZ is another `weights`, qgZ other `gradients_...`, hpZ a `secondary`.
struct step_options {
    /// Of the forward gather, and of the backward one where there is no secondary partition.
    wire_format weights;
    wire_format gradients_inside;
    wire_format gradients_across;
    std::optional<secondary_options> secondary = std::nullopt;
    /// Of the weights that every node keeps, divided over its ranks, where `weights` is for their differences; then
    /// there is no secondary partition.
    std::optional<wire_format> replicas = std::nullopt;
    /// Of the reduce-scatter, and of the all-gathers; `automatic` is what they are in a pipeline by themselves.
    int chunks = 1;
    int gather_chunks = 1;
};

/// What a rank sends in a training step.
struct step_volume {
    volume forward;
    volume backward;
    volume gradients;

    /// All of the step.
    volume total() const { return forward + backward + gradients; }
    friend bool operator==(const step_volume&, const step_volume&) = default;
};

/// Of a model of `tensors`, their sizes in elements, each gathered and reduced by itself.
template <topology Topology>
step_volume volume_of_step(const Topology& ranks, std::span<const std::size_t> tensors, const step_options& options) {
    step_volume sum;
    for (const std::size_t n : tensors) {
        if (options.replicas) {
            sum.forward += update_gather_volume(ranks, options.weights, *options.replicas, n, options.gather_chunks);
            sum.backward += replica_gather_volume(ranks, *options.replicas, n);
        } else {
            const volume gather = all_gather_volume(ranks, options.weights, n, options.gather_chunks);
            sum.forward += gather;
            sum.backward += options.secondary ? secondary_gather_volume(ranks, options.secondary->group_size,
                                                                        options.secondary->stored_as, n)
                                              : gather;
        }
        sum.gradients +=
            reduce_scatter_volume(ranks, options.gradients_inside, options.gradients_across, n, options.chunks);
    }
    return sum;
}

}  // namespace zeropp
