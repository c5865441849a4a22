#pragma once
/// \file
/// Prediction of the memory that a training step needs on each rank.

#include <zeropp/core/math.hpp>
#include <zeropp/elastic/partners.hpp>
#include <zeropp/layout/partition.hpp>
#include <zeropp/layout/schedule.hpp>
#include <zeropp/layout/wire_format.hpp>
#include <zeropp/plan/step.hpp>
#include <zeropp/topology/columns.hpp>
#include <zeropp/topology/topology.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace zeropp {

/// Bytes that each parameter of a model takes as a weight, as a gradient and in the optimizer. Defaults: 16-bit weights
/// and gradients, and 12 bytes for Adam with a float copy of the weights.
struct state_bytes {
    std::size_t parameter = 2;
    std::size_t gradient = 2;
    std::size_t optimizer = 12;
};

/// Bytes of a model's weights, gradients and optimizer state on one rank.
struct states_memory {
    std::uint64_t parameters = 0;
    std::uint64_t gradients = 0;
    std::uint64_t optimizer = 0;

    /// Bytes of all three states.
    std::uint64_t total() const { return parameters + gradients + optimizer; }
    friend bool operator==(const states_memory&, const states_memory&) = default;
};

/// Bytes of a model's states on the rank that holds the most. `tensors` are sizes in elements. `ranks` is the number of
/// ranks that divide each tensor: 1 for data-parallel training, all ranks for ZeRO-3 with or without hpZ, the ranks of
/// a group for MiCS. Throws precondition_error unless ranks > 0.
inline states_memory memory_of_states(std::span<const std::size_t> tensors, int ranks, const state_bytes& bytes = {}) {
    detail::require_least("memory_of_states", "1 rank", ranks);
    std::uint64_t elements = 0;
    for (const std::size_t n : tensors) elements += partition(n, ranks).slice_size();
    return {elements * bytes.parameter, elements * bytes.gradient, elements * bytes.optimizer};
}

/// Bytes of hpZ's secondary shards, which each rank keeps throughout training. `tensors` are sizes in elements. Throws
/// precondition_error unless the group size is at least 1: if groups are nodes, give the number of ranks of the
/// smallest, not `whole_nodes`.
inline std::uint64_t secondary_memory(std::span<const std::size_t> tensors, const secondary_options& secondary) {
    detail::require_least("secondary group size", "1 rank", secondary.group_size);
    return detail::shard_bytes(tensors, secondary.group_size, secondary.stored_as);
}

/// Bytes of the replicas that a rank keeps for quantized_update, in the format `kept_as`. If nodes differ in size, of
/// the rank that keeps the most. `tensors` are sizes in elements.
template <topology Topology>
std::uint64_t replica_memory(const Topology& ranks, std::span<const std::size_t> tensors, const wire_format& kept_as) {
    return most_served(ranks) * detail::shard_bytes(tensors, ranks.size(), kept_as);
}

/// Bytes of the mirrors (shard_mirror) that a rank keeps for its partners, in the format `mirror`: of the rank that
/// keeps the most. `tensors` are sizes in elements. Throws precondition_error if there is only one node.
template <topology Topology>
std::uint64_t mirror_memory(const Topology& ranks, std::span<const std::size_t> tensors, const wire_format& mirror) {
    std::uint64_t kept = 0;
    for (int g = 0; g != ranks.groups(); ++g) {
        const std::vector<int> members = partner_ranks(ranks, ranks.rank_of(g, 0));
        const Topology partners = ranks.shrink(members);
        for (int i = 0; i != ranks.group_size(g); ++i) {
            kept = std::max<std::uint64_t>(kept, detail::mirrored_by(partners, members, ranks.rank_of(g, i)).size());
        }
    }
    return kept * detail::shard_bytes(tensors, ranks.size(), mirror);
}

/// Bytes of the residuals that each rank keeps for reduce-scatters of `tensors` (sizes in elements) with error
/// feedback. `formats` are the residuals' formats along each level: for a quantizer Q, `wire_format_of`
/// Storage::storage<Q>, where Storage may be residuals_in_int8.
template <topology Topology>
std::uint64_t residuals_memory(const Topology& ranks, std::span<const std::size_t> tensors,
                               const level_formats& formats) {
    std::uint64_t bytes = 0;
    for (int l = 0; l != Topology::levels; ++l) {
        bytes += reduction_slots(ranks, l) * detail::shard_bytes(tensors, ranks.size(), formats.at(l));
    }
    return bytes;
}

/// Bytes that local steps with the outer optimizer `nesterov` keep on each rank of an `island`: anchors, momenta,
/// differences and residuals. A rule with other `slots` adds 4 (slots - 1) bytes for each element of a shard. `tensors`
/// are sizes in elements.
template <topology Topology>
std::uint64_t outer_memory(const Topology& island, std::span<const std::size_t> tensors, const local_steps& local) {
    detail::require_possible(local);
    std::uint64_t bytes = 0;
    for (const std::size_t n : tensors) {
        const std::size_t shard = partition(n, island.size()).slice_size();
        bytes += 3 * sizeof(float) * round_up(shard, 4);
        if (local.residuals) {
            const std::size_t slice = partition(shard, local.islands).slice_size();
            bytes += (static_cast<std::uint64_t>(local.islands) + 1) * local.residuals->bytes(slice);
        }
    }
    return bytes;
}

/// Workspace bytes of quantized_all_gather for `elements` elements in `chunks` chunks, or `auto_chunks`.
template <topology Topology>
std::uint64_t all_gather_workspace(const Topology& ranks, const wire_format& format, std::size_t elements,
                                   int chunks = 1) {
    return detail::gather_workspace(ranks, detail::planned_tensor(ranks, elements), format, chunks);
}

/// Workspace bytes of secondary_partition_gather for `elements` elements. Throws precondition_error for `whole_nodes`.
inline std::uint64_t secondary_gather_workspace(const secondary_options& secondary, std::size_t elements) {
    detail::require_least("secondary group size", "1 rank", secondary.group_size);
    return static_cast<std::uint64_t>(secondary.group_size) *
           secondary.stored_as.bytes(partition(elements, secondary.group_size).slice_size());
}

/// Workspace bytes of a quantized_update of `elements` elements that also gathers whole tensors, in `chunks` chunks, or
/// `auto_chunks`. Weight differences have the format `differences`, messages within a node the format `kept_as`.
template <topology Topology>
std::uint64_t update_gather_workspace(const Topology& ranks, const wire_format& differences, const wire_format& kept_as,
                                      std::size_t elements, int chunks = 1) {
    return detail::update_workspace(ranks, detail::planned_tensor(ranks, elements), {differences, kept_as}, chunks,
                                    true);
}

/// Workspace bytes of hierarchical_quantized_reduce_scatter for `elements` elements in `chunks` chunks, or
/// `auto_chunks`.
template <topology Topology>
std::uint64_t reduce_scatter_workspace(const Topology& ranks, const level_formats& formats, std::size_t elements,
                                       int chunks = 1) {
    return detail::reduce_workspace(ranks, detail::planned_tensor(ranks, elements), formats.by_level(), chunks);
}

/// Bytes of scratch on each rank for the largest tensor: its whole weights `gathered` times, its whole gradient once,
/// and the collectives' workspaces. `gathered` is 2 if one tensor is gathered while another computes.
template <topology Topology>
std::uint64_t scratch_memory(const Topology& ranks, std::span<const std::size_t> tensors, const step_options& options,
                             const state_bytes& bytes = {}, int gathered = 2) {
    detail::require_least("scratch_memory", "0 tensors of whole weights", gathered, 0);
    std::uint64_t whole = 0, gather = 0, reduce = 0;
    for (const std::size_t n : tensors) {
        whole = std::max(whole, n * (static_cast<std::uint64_t>(gathered) * bytes.parameter + bytes.gradient));
        gather =
            std::max(gather, options.replicas ? update_gather_workspace(ranks, options.weights, *options.replicas, n,
                                                                        options.gather_chunks)
                                              : all_gather_workspace(ranks, options.weights, n, options.gather_chunks));
        const bool by_node = options.secondary && options.secondary->group_size == whole_nodes;
        for (int g = 0; options.secondary && g != (by_node ? ranks.groups() : 1); ++g) {
            const int size = secondary_group_size(ranks, options.secondary->group_size, ranks.rank_of(g, 0));
            gather = std::max(gather, secondary_gather_workspace({size, options.secondary->stored_as}, n));
        }
        reduce = std::max(reduce, reduce_scatter_workspace(ranks, options.gradients, n, options.chunks));
    }
    return whole + gather + reduce;
}

}  // namespace zeropp
