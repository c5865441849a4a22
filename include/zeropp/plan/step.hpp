#pragma once
/// \file
/// Bytes and time of a training step.

#include <zeropp/layout/wire_format.hpp>
#include <zeropp/plan/time.hpp>
#include <zeropp/plan/volume.hpp>
#include <zeropp/topology/topology.hpp>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>

namespace zeropp {

/// Communication of a ZeRO-3 training step. ZeRO-3 itself has `cast_to` formats and no secondary partition; qwZ
/// changes `weights`, qgZ `gradients`, hpZ `secondary`.
struct step_options {
    /// Format of gathered weights, forward and, without `secondary`, backward.
    wire_format weights;
    /// Formats of reduced gradients along each level.
    level_formats gradients;
    /// Secondary shards, from which the backward pass gathers weights; empty without hpZ.
    std::optional<secondary_options> secondary = std::nullopt;
    /// Format of the replicas of quantized_update; each node keeps all weights, divided over its ranks. `weights` is
    /// then the format of weight differences, and `secondary` must be empty.
    std::optional<wire_format> replicas = std::nullopt;
    /// Number of chunks of the reduce-scatter. `auto_chunks`: by message size, as in a call with overlapping hops.
    int chunks = 1;
    /// Number of chunks of an all-gather or update. `auto_chunks`: by message size, as in a call with overlapping hops.
    int gather_chunks = 1;
};

/// Bytes that a rank sends in a training step: in gathers forward and backward, and in reduce-scatters of gradients.
struct step_volume {
    volume forward;
    volume backward;
    volume gradients;

    /// Bytes of the whole step.
    volume total() const { return forward + backward + gradients; }
    friend bool operator==(const step_volume&, const step_volume&) = default;
};

/// Bytes that `rank` sends in a training step of a model. `tensors` are sizes in elements; each tensor moves by itself.
template <topology Topology>
step_volume volume_of_step(const Topology& ranks, std::span<const std::size_t> tensors, const step_options& options,
                           int rank = 0) {
    step_volume sum;
    for (const std::size_t n : tensors) {
        if (options.replicas) {
            sum.forward +=
                update_gather_volume(ranks, options.weights, *options.replicas, n, options.gather_chunks, rank);
            sum.backward += replica_gather_volume(ranks, *options.replicas, n, rank);
        } else {
            const volume gather = all_gather_volume(ranks, options.weights, n, options.gather_chunks, rank);
            sum.forward += gather;
            sum.backward += options.secondary ? secondary_gather_volume(ranks, options.secondary->group_size,
                                                                        options.secondary->stored_as, n, rank)
                                              : gather;
        }
        sum.gradients += reduce_scatter_volume(ranks, options.gradients, n, options.chunks, rank);
    }
    return sum;
}

/// Seconds of computation in a training step.
struct compute_time {
    double forward = 0;
    double backward = 0;

    /// Divides `seconds` of computation in a step: the backward pass computes twice as long as the forward pass.
    static compute_time of_step(double seconds) { return {seconds / 3, seconds * 2 / 3}; }
};

/// Seconds of a training step, separate for each pass; `gradients` is the reduce-scatter of gradients.
struct step_time {
    collective_time forward;
    collective_time backward;
    collective_time gradients;
    compute_time compute;

    /// Seconds of all collectives, one after another.
    double communication() const { return forward.total() + backward.total() + gradients.total(); }
    /// Seconds of the step if no communication overlaps computation: the slowest case.
    double without_overlap() const { return compute.forward + compute.backward + communication(); }
    /// Seconds of the step if each pass overlaps all its communication with all its computation: the fastest case.
    double with_overlap() const {
        return std::max(compute.forward, forward.total()) +
               std::max(compute.backward, backward.total() + gradients.total());
    }
};

/// Time of a training step of a model. `tensors` are sizes in elements, each of `element_bytes` bytes.
template <topology Topology>
step_time time_of_step(const machine& m, const Topology& ranks, std::span<const std::size_t> tensors,
                       const step_options& options, const compute_time& compute, std::size_t element_bytes = 2) {
    step_time sum;
    sum.compute = compute;
    for (const std::size_t n : tensors) {
        if (options.replicas) {
            sum.forward += update_gather_time(m, ranks, options.weights, *options.replicas, n, element_bytes,
                                              options.gather_chunks);
            sum.backward += replica_gather_time(m, ranks, *options.replicas, n, element_bytes);
        } else {
            const collective_time gather =
                all_gather_time(m, ranks, options.weights, n, element_bytes, options.gather_chunks);
            sum.forward += gather;
            sum.backward +=
                options.secondary ? secondary_gather_time(m, ranks, *options.secondary, n, element_bytes) : gather;
        }
        sum.gradients += reduce_scatter_time(m, ranks, options.gradients, n, element_bytes, options.chunks);
    }
    return sum;
}

}  // namespace zeropp
