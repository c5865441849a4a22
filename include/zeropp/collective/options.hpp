#pragma once
/// \file
/// The options of collectives; the same on every rank.

#include <zeropp/core/text.hpp>
#include <zeropp/topology/chunking.hpp>
#include <zeropp/topology/hop_sizes.hpp>
#include <zeropp/topology/topology.hpp>

#include <algorithm>
#include <cstddef>
#include <string_view>

namespace zeropp {

/// The options of an all-gather.
struct gather_options {
    /// Into how many chunks each slice is cut, so that one is gathered inside the node and decoded while others cross:
    /// `automatic`, or a number above 0. Fewer are used where the slice has fewer blocks. Automatic: one on a single
    /// execution, where nothing overlaps, and otherwise what `automatic_chunks` says.
    int chunks = automatic;
};

/// What a reduction computes of the ranks' values: their sum, or sum / ranks.
enum class reduction { sum, mean };

namespace detail {
constexpr short_text reduction_text(reduction operation, int in_chunks) {
    short_text t(operation == reduction::mean ? "mean" : "sum");
    return t.append(" in ").append(std::max(in_chunks, 0)).append(in_chunks == 1 ? " chunk" : " chunks");
}
}  // namespace detail

/// The options of a reduce-scatter.
struct reduce_options {
    reduction operation = reduction::sum;
    /// Into how many chunks each slice is cut, so that the hops of successive chunks overlap; as in gather_options.
    int chunks = automatic;
    /// Add to what the shard holds instead of replacing it.
    bool accumulate = false;

    /// The options in words, in so many chunks.
    constexpr short_text text(int in_chunks) const {
        short_text t = detail::reduction_text(operation, in_chunks);
        if (accumulate) t.append(", accumulated");
        return t;
    }
};

/// How an all-reduce goes: `gather`, everybody's tensor to everybody, who sums it, or `scatter`, each slice to one
/// rank, and its sum from there to all; `by_size` chooses. The former is one hop out (two across nodes) for small
/// tensors, where starting messages costs more than moving bytes; the latter is two (four), and moves far fewer bytes.
enum class all_reduce_route { by_size, gather, scatter };

/// The options of an all-reduce.
struct all_reduce_options {
    reduction operation = reduction::sum;
    /// Into how many chunks each slice is cut, as in gather_options. The route `gather` has one.
    int chunks = automatic;
    all_reduce_route route = all_reduce_route::by_size;

    /// The options in words, in so many chunks of the route `scatter`, or on the route `gather`.
    constexpr short_text text(int in_chunks) const { return detail::reduction_text(operation, in_chunks); }
    constexpr short_text text() const { return operation == reduction::mean ? "mean of all" : "sum of all"; }
};

namespace detail {

/// `wanted`, or the route for `ranks` messages of so many bytes, each of a whole tensor.
constexpr all_reduce_route route_for(all_reduce_route wanted, int ranks, std::size_t tensor_bytes) {
    if (wanted != all_reduce_route::by_size) return wanted;
    return sums_everywhere(ranks, tensor_bytes) ? all_reduce_route::gather : all_reduce_route::scatter;
}

/// bytes(chunks), or where their number is automatic the most that it may come to.
template <topology Topology, class Bytes>
std::size_t largest_for_chunks(int wanted, const Topology& ranks, std::size_t message_bytes, Bytes bytes) {
    return std::max(bytes(chunks_for(wanted, ranks, message_bytes, false)),
                    bytes(chunks_for(wanted, ranks, message_bytes, true)));
}

}  // namespace detail

}  // namespace zeropp
