#pragma once
/// \file
/// Options of collectives; equal on all ranks.

#include <zeropp/core/text.hpp>
#include <zeropp/layout/chunking.hpp>
#include <zeropp/topology/topology.hpp>

#include <algorithm>
#include <cstddef>

namespace zeropp {

/// Options of an all-gather, and of an update.
struct gather_options {
    /// Number of chunks of each shard, above 0, or `auto_chunks`. While one chunk is gathered within the node and
    /// decoded, others cross nodes. A shard of fewer blocks has fewer chunks. `auto_chunks` means `automatic_chunks`,
    /// and 1 where no hops overlap (one execution, or one node).
    int chunks = auto_chunks;
};

/// Result of a reduction: the sum of the ranks' values, or sum / ranks.
enum class reduction { sum, mean };

namespace detail {
constexpr short_text reduction_text(reduction operation, int in_chunks) {
    short_text t(operation == reduction::mean ? "mean" : "sum");
    return t.append(" in ").append(std::max(in_chunks, 0)).append(in_chunks == 1 ? " chunk" : " chunks");
}
}  // namespace detail

/// Options of a reduce-scatter.
struct reduce_options {
    reduction operation = reduction::sum;
    /// Number of chunks of each shard, as in gather_options. Hops of successive chunks overlap.
    int chunks = auto_chunks;
    /// Adds the result to the shard, instead of replacing the shard.
    bool accumulate = false;

    /// The options in words, for `in_chunks` chunks.
    constexpr short_text text(int in_chunks) const {
        short_text t = detail::reduction_text(operation, in_chunks);
        if (accumulate) t.append(", accumulated");
        return t;
    }
};

/// Algorithm of an all-reduce. `one_shot`: all ranks gather all tensors and sum them, in one hop (two with several
/// nodes). For two ranks, and for small tensors, where starting messages costs more than moving bytes. `two_shot`: a
/// reduce-scatter and an all-gather, in two hops (four with several nodes). These move far fewer bytes between more
/// ranks. `by_size` chooses (`prefers_one_shot`).
enum class all_reduce_algorithm { by_size, one_shot, two_shot };

/// Options of an all-reduce.
struct all_reduce_options {
    reduction operation = reduction::sum;
    /// Number of chunks of each shard, as in gather_options. `one_shot` has one chunk.
    int chunks = auto_chunks;
    all_reduce_algorithm algorithm = all_reduce_algorithm::by_size;

    /// The options in words: of `two_shot` if `in_chunks` chunks are given, otherwise of `one_shot`.
    constexpr short_text text(int in_chunks) const { return detail::reduction_text(operation, in_chunks); }
    constexpr short_text text() const { return operation == reduction::mean ? "mean of all" : "sum of all"; }
};

namespace detail {

/// `wanted`, or for `by_size` the algorithm that `prefers_one_shot` chooses.
constexpr all_reduce_algorithm algorithm_for(all_reduce_algorithm wanted, int ranks, std::size_t first_hop_bytes,
                                             std::size_t all_gather_bytes) {
    if (wanted != all_reduce_algorithm::by_size) return wanted;
    return prefers_one_shot(ranks, first_hop_bytes, all_gather_bytes) ? all_reduce_algorithm::one_shot
                                                                      : all_reduce_algorithm::two_shot;
}

constexpr float divisor_of(reduction operation, int ranks) {
    return operation == reduction::mean ? static_cast<float>(ranks) : 1.0f;
}

}  // namespace detail

}  // namespace zeropp
