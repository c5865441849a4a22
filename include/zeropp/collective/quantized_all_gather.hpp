#pragma once
/// \file
/// qwZ: the weight all-gather of ZeRO-3, moving quantized blocks in place of elements.

#include <zeropp/codec/codec.hpp>
#include <zeropp/collective/run_to_completion.hpp>
#include <zeropp/core/view.hpp>
#include <zeropp/core/workspace.hpp>
#include <zeropp/execution/execution.hpp>
#include <zeropp/quantizer/wire_layout.hpp>
#include <zeropp/topology/partition.hpp>
#include <zeropp/topology/topology.hpp>
#include <zeropp/transport/communicator.hpp>

#include <cstddef>
#include <cstdint>
#include <string>

namespace zeropp {

/// Bytes of workspace that quantized_all_gather needs for a tensor of `elements`: one message for each rank.
template <topology Topology, quantizer Quantizer>
std::size_t quantized_all_gather_workspace_bytes(const Topology& ranks, const Quantizer& q, std::size_t elements) {
    return static_cast<std::size_t>(ranks.size()) * wire_bytes(q, partition(elements, ranks.size()).slice_size());
}

namespace detail {

/// The gather, once the callers below have said what else the ranks must agree on (`options`) and what is wrong with
/// arguments of theirs (`problem`, empty for nothing).
template <execution Execution, class Communicator, quantizer Quantizer, class Shard, class Full, class Scratch>
void gather_quantized(const Execution& exec, Communicator& comm, const Quantizer& q, Shard&& shard, Full&& full,
                      Scratch&& scratch, const short_text& options, std::string problem) {
    using space = typename Execution::space;
    using T = element_of<Full, space>;
    static_assert(std::same_as<T, element_of<Shard, space>>, "shard and full must have the same element type");
    static_assert(codec_execution<Execution, Quantizer, T>, "no codec for this execution: include its entry header");

    const auto in = as_view<space>(shard);
    const auto out = as_view<space>(full);
    const view<std::byte, space> work = as_view<space>(scratch);
    const auto& ranks = comm.topology();
    const partition part(out.size(), ranks.size());

    if (problem.empty()) problem = workspace_problem(work, quantized_all_gather_workspace_bytes(ranks, q, out.size()));
    if (in.size() != part.size(comm.rank())) {
        problem = "expected a shard of " + std::to_string(part.size(comm.rank())) + " elements of " +
                  std::to_string(out.size()) + ", given one of " + std::to_string(in.size());
    }
    begin_collective(comm.world(), {"quantized_all_gather", out.size(), element_traits<T>::name, q.name(), options},
                     problem);
    if (out.size() == 0) return;

    // Slot order puts the messages of one index together: what arrives from the other nodes is what the node gathers.
    const std::size_t bytes = wire_bytes(q, part.slice_size());
    const std::size_t index_bytes = static_cast<std::size_t>(ranks.groups()) * bytes;
    std::byte* const messages = work.data();
    std::byte* const of_index = messages + static_cast<std::size_t>(comm.index()) * index_bytes;
    std::byte* const own = of_index + static_cast<std::size_t>(comm.group_id()) * bytes;

    codec<Execution>::encode(exec, q, in.data(), slices::single(in.size(), 0, part.slice_size()), own);
    if (ranks.groups() > 1) comm.across().all_gather(exec, own, of_index, bytes);
    if (ranks.group_size() > 1) comm.group().all_gather(exec, of_index, messages, index_bytes);
    codec<Execution>::decode(exec, q, messages, slices{part, ranks.order(), 0, part.slice_size(), 0, ranks.size()},
                             out.data());
}

}  // namespace detail

/// Gathers every rank's shard into `full`, moving quantized blocks in place of elements.
///
/// Shapes    full [n]; shard [partition(n, ranks).size(rank)], that is n / ranks where it divides; scratch as
///           quantized_all_gather_workspace_bytes(...), aligned to 16 bytes
/// Result    full == the shards in rank order, each through decode(encode(...)), the caller's own included, so that all
///           ranks hold the same bits
/// In place  shard may lie inside full
/// Moves     two-level: each message across nodes once to the ranks of the same index, then inside the node
/// Order     enqueued on `exec`; host{} has finished on return. Arrays and communicator must outlive the work
/// Requires  the same n, element type and quantizer on all ranks
/// Throws    precondition_error before any message; on every rank alike if what is wrong is wrong on every rank or the
///           transport is `checked`
/// Source    ZeRO++ (arXiv 2306.10209), section 3.1, qwZ
template <execution Execution, class Communicator, quantizer Quantizer, array_in<typename Execution::space> Shard,
          mutable_array_in<typename Execution::space> Full, mutable_array_in<typename Execution::space> Scratch>
void quantized_all_gather(const Execution& exec, Communicator& comm, const Quantizer& q, Shard&& shard, Full&& full,
                          Scratch&& scratch) {
    detail::gather_quantized(exec, comm, q, shard, full, scratch, {}, {});
}

/// The same, storing this rank's part of the gathered tensor in `secondary` on the way, stamped with `version`, for
/// secondary_partition_gather. The ranks must agree on `version`, and `secondary` must be for a tensor of this size.
template <execution Execution, class Communicator, quantizer Quantizer, array_in<typename Execution::space> Shard,
          mutable_array_in<typename Execution::space> Full, mutable_array_in<typename Execution::space> Scratch,
          class Secondary>
void quantized_all_gather(const Execution& exec, Communicator& comm, const Quantizer& q, Shard&& shard, Full&& full,
                          Scratch&& scratch, Secondary& secondary, std::uint64_t version) {
    const std::size_t elements = as_view<typename Execution::space>(full).size();
    std::string problem;
    if (secondary.part().count() != elements) {
        problem = "expected a secondary partition of a tensor of " + std::to_string(elements) +
                  " elements, given one of " + std::to_string(secondary.part().count());
    }
    const short_text options = short_text("stored at version ").append(std::to_string(version));
    detail::gather_quantized(exec, comm, q, shard, full, scratch, options, problem);
    secondary.store(exec, full, version);
}

/// The same with a workspace of its own, for first use: allocates, and blocks until the work is complete.
template <execution Execution, class Communicator, quantizer Quantizer, array_in<typename Execution::space> Shard,
          mutable_array_in<typename Execution::space> Full>
void quantized_all_gather(const Execution& exec, Communicator& comm, const Quantizer& q, Shard&& shard, Full&& full) {
    using space = typename Execution::space;
    workspace<space> scratch(quantized_all_gather_workspace_bytes(comm.topology(), q, as_view<space>(full).size()));
    detail::run_to_completion(exec, [&] { quantized_all_gather(exec, comm, q, shard, full, scratch.view()); });
}

}  // namespace zeropp
