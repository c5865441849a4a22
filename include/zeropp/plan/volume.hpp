#pragma once
/// \file
/// Bytes that collectives send, before any is sent.

#include <zeropp/core/error.hpp>
#include <zeropp/layout/chunking.hpp>
#include <zeropp/layout/hop_sizes.hpp>
#include <zeropp/layout/partition.hpp>
#include <zeropp/plan/wire_format.hpp>
#include <zeropp/topology/shard_owners.hpp>
#include <zeropp/topology/topology.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace zeropp {

/// Bytes that a rank sends to ranks of its node, and to ranks of other nodes. Every rank sends as many; a node sends
/// group_size() times, all ranks send size() times as many. `counting` counts exactly these bytes.
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

/// Bytes of one rank's messages of a shard, one for each chunk of `cut`.
inline std::uint64_t message_bytes(const chunking& cut, const wire_format& format) {
    if (cut.chunks == 0) return 0;
    return (cut.chunks - 1) * format.bytes(cut.chunk) + format.bytes(cut.count(cut.chunks - 1));
}

namespace detail {
/// Cuts a tensor's shards into `chunks` chunks or, if `auto_chunks`, as many as a pipeline takes. `across` is the
/// format of inter-node messages.
template <topology Topology>
chunking planned_chunks(const Topology& ranks, const wire_format& across, std::size_t elements, int chunks,
                        std::size_t block) {
    static_assert(!std::same_as<Topology, shard_owners>, "plans are of topologies whose ranks all own slices");
    const std::size_t slice = partition(elements, ranks.size()).slice_size();
    return {slice, chunks_for(chunks, ranks, across.bytes(slice), true), block};
}
}  // namespace detail

/// Bytes that a rank sends in quantized_update_gather for `elements` elements: its differences to its counterparts,
/// then its replicas, in messages of `kept_as`, to its node.
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

/// Bytes that a rank sends in quantized_all_gather for `elements` elements in `chunks` chunks, or `auto_chunks`. It
/// sends its messages to its counterparts, then the messages of its index to its node.
template <topology Topology>
volume all_gather_volume(const Topology& ranks, const wire_format& format, std::size_t elements, int chunks = 1) {
    return update_gather_volume(ranks, format, format, elements, chunks);
}

/// Bytes that a rank sends in secondary_partition_gather from replicas that quantized_update has brought up to date.
template <topology Topology>
volume replica_gather_volume(const Topology& ranks, const wire_format& kept_as, std::size_t elements) {
    volume v = all_gather_volume(ranks, kept_as, elements);
    v.across = 0;
    return v;
}

/// Bytes that a rank sends in hierarchical_quantized_reduce_scatter for `elements` elements in `chunks` chunks, or
/// `auto_chunks`. Each rank of its node gets the shards of that rank's index, then each counterpart its shard.
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

/// Bytes that a rank sends in quantized_all_reduce for `elements` elements in `chunks` chunks, or `auto_chunks`. By
/// size: one-shot, its whole tensor to all; or two-shot, a reduce-scatter, and an all-gather in format `back`.
template <topology Topology>
volume all_reduce_volume(const Topology& ranks, const wire_format& inside, const wire_format& across,
                         const wire_format& back, std::size_t elements, int chunks = auto_chunks) {
    if (elements == 0) return {};
    const auto groups = static_cast<std::uint64_t>(ranks.groups());
    const auto group_size = static_cast<std::uint64_t>(ranks.group_size());
    const auto gathered = [&](std::uint64_t bytes) -> volume {
        return {.inside = (group_size - 1) * groups * bytes, .across = (groups - 1) * bytes};
    };
    const std::size_t slice = partition(elements, ranks.size()).slice_size();
    const std::uint64_t whole =
        static_cast<std::uint64_t>(ranks.size()) * (has_hop_inside(ranks) ? inside.bytes(slice) : across.bytes(slice));
    if (prefers_one_shot(ranks.size(), whole)) return gathered(whole);
    const chunking cut = detail::planned_chunks(ranks, across, elements, chunks,
                                                std::max({inside.block_size, across.block_size, back.block_size}));
    return volume{.inside = (group_size - 1) * groups * message_bytes(cut, inside),
                  .across = (groups - 1) * message_bytes(cut, across)} +
           gathered(message_bytes(cut, back));
}

/// Number of a rank's peers in its secondary group of `group_size` consecutive ranks, on its node and on others.
/// Requires nodes of consecutive ranks. Throws precondition_error unless groups divide the ranks and are whole parts of
/// nodes or whole nodes: the numbers are then equal on all ranks.
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

/// Bytes that a rank sends in secondary_partition_gather for `elements` elements, in groups of `group_size` consecutive
/// ranks: its message to each of the group. Throws as `secondary_peers` does.
template <topology Topology>
volume secondary_gather_volume(const Topology& ranks, int group_size, const wire_format& stored_as,
                               std::size_t elements) {
    const secondary_peers peers(ranks, group_size);
    if (elements == 0) return {};
    const std::uint64_t message = stored_as.bytes(partition(elements, group_size).slice_size());
    return {.inside = static_cast<std::uint64_t>(peers.inside) * message,
            .across = static_cast<std::uint64_t>(peers.across) * message};
}

/// hpZ: a second copy of the weights, divided over groups of `group_size` ranks.
struct secondary_options {
    int group_size;
    wire_format stored_as;
};

/// Communication of a ZeRO-3 training step. ZeRO-3 itself has `lossless` formats and no secondary partition; qwZ
/// changes `weights`, qgZ `gradients_...`, hpZ `secondary`.
struct step_options {
    /// Formats of weights (forward gather, and backward without `secondary`), and of gradients on each hop.
    wire_format weights;
    wire_format gradients_inside;
    wire_format gradients_across;
    std::optional<secondary_options> secondary = std::nullopt;
    /// Format of the replicas that every node keeps, divided over its ranks. `weights` is then the format of their
    /// differences, and `secondary` must be empty.
    std::optional<wire_format> replicas = std::nullopt;
    /// Number of chunks of the reduce-scatter, and of the all-gathers. `auto_chunks`: as many as a pipeline takes.
    int chunks = 1;
    int gather_chunks = 1;
};

/// Bytes that a rank sends in a training step.
struct step_volume {
    volume forward;
    volume backward;
    volume gradients;

    /// Bytes of the whole step.
    volume total() const { return forward + backward + gradients; }
    friend bool operator==(const step_volume&, const step_volume&) = default;
};

/// Bytes that a rank sends in a step of a model. `tensors` are sizes in elements; each tensor moves by itself.
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
