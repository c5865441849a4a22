#pragma once
/// \file
/// Options of collectives, which must be equal on all ranks.

#include <zeropp/core/text.hpp>
#include <zeropp/layout/chunking.hpp>

#include <algorithm>

namespace zeropp {

/// Options of quantized_all_gather and of quantized_update.
struct gather_options {
    /// Number of chunks of each shard, above 0, or `auto_chunks`. While one chunk is gathered within the node and
    /// decoded, others cross nodes. A shard with fewer blocks than this number has fewer chunks. `auto_chunks` chooses
    /// the number by message size (`automatic_chunks`), and 1 where no hops overlap (one execution, or one node).
    int chunks = auto_chunks;
};

/// Result of a reduction: the sum of the ranks' values, or the mean, which is sum / number of ranks.
enum class reduction { sum, mean };

namespace detail {
constexpr short_text reduction_text(reduction operation, int in_chunks) {
    short_text t(operation == reduction::mean ? "mean" : "sum");
    return t.append(" in ").append(std::max(in_chunks, 0)).append(in_chunks == 1 ? " chunk" : " chunks");
}
}  // namespace detail

/// Options of hierarchical_quantized_reduce_scatter.
struct reduce_options {
    reduction operation = reduction::sum;
    /// Number of chunks of each shard, above 0, or `auto_chunks` to choose it by message size. Hops of successive
    /// chunks overlap.
    int chunks = auto_chunks;
    /// True to add the result to the shard; false to replace the shard by the result.
    bool accumulate = false;

    /// Text of these options for a call in `in_chunks` chunks, which ranks compare.
    constexpr short_text text(int in_chunks) const {
        short_text t = detail::reduction_text(operation, in_chunks);
        if (accumulate) t.append(", accumulated");
        return t;
    }
};

/// Algorithm of an all-reduce. `one_shot`: all ranks gather all tensors and sum them, in one hop (two with several
/// nodes). For two ranks, and for small tensors, where starting messages costs more than moving bytes. `two_shot`: a
/// reduce-scatter and an all-gather, in two hops (four with several nodes). With more ranks, two-shot moves far fewer
/// bytes. `by_size` chooses one of these by number of ranks and message size (`prefers_one_shot`).
enum class all_reduce_algorithm { by_size, one_shot, two_shot };

/// Options of quantized_all_reduce.
struct all_reduce_options {
    reduction operation = reduction::sum;
    /// Number of chunks of each shard in two-shot, above 0, or `auto_chunks` to choose it by message size. One-shot has
    /// one chunk.
    int chunks = auto_chunks;
    all_reduce_algorithm algorithm = all_reduce_algorithm::by_size;

    /// Text of these options for a two-shot call in `in_chunks` chunks, which ranks compare.
    constexpr short_text text(int in_chunks) const { return detail::reduction_text(operation, in_chunks); }
    /// Text of these options for a one-shot call, which ranks compare.
    constexpr short_text text() const { return operation == reduction::mean ? "mean of all" : "sum of all"; }
};

namespace detail {

constexpr float divisor_of(reduction operation, int ranks) {
    return operation == reduction::mean ? static_cast<float>(ranks) : 1.0f;
}

}  // namespace detail

}  // namespace zeropp
