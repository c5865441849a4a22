#pragma once
/// \file
/// qwZ: the weight all-gather of ZeRO-3, moving quantized blocks in place of elements.

#include <zeropp/codec/codec.hpp>
#include <zeropp/collective/gather_messages.hpp>
#include <zeropp/collective/pipeline.hpp>
#include <zeropp/collective/run_to_completion.hpp>
#include <zeropp/core/view.hpp>
#include <zeropp/core/workspace.hpp>
#include <zeropp/execution/execution.hpp>
#include <zeropp/quantizer/wire_layout.hpp>
#include <zeropp/topology/chunking.hpp>
#include <zeropp/topology/partition.hpp>
#include <zeropp/topology/topology.hpp>
#include <zeropp/transport/communicator.hpp>

#include <cstddef>
#include <cstdint>
#include <string>

namespace zeropp {

/// The options of an all-gather; the same on every rank.
struct gather_options {
    /// Into how many chunks each shard is cut, so that one is gathered inside the node and decoded while others cross.
    /// Fewer are used where the shard has fewer blocks. Requires chunks > 0. How many: as reduce_options says.
    int chunks = 1;
};

/// Bytes of workspace that quantized_all_gather needs for a tensor of `elements`: one message for each rank and chunk.
template <topology Topology, quantizer Quantizer>
std::size_t quantized_all_gather_workspace_bytes(const Topology& ranks, const Quantizer& q, std::size_t elements,
                                                 const gather_options& options = {}) {
    if (elements == 0) return 0;
    const std::size_t slice = partition(elements, ranks.size()).slice_size();
    const chunking cut(slice, options.chunks, static_cast<std::size_t>(Quantizer::block_size));
    const std::size_t last = cut.chunks - 1;
    return static_cast<std::size_t>(ranks.size()) * (last * wire_bytes(q, cut.chunk) + wire_bytes(q, cut.count(last)));
}

namespace detail {

/// The gather, once the callers below have said what else the ranks must agree on (`agreed`) and what is wrong with
/// arguments of theirs (`problem`, empty for nothing).
template <execution Execution, class Communicator, quantizer Quantizer, class Shard, class Full, class Scratch>
void gather_quantized(const pipeline<Execution>& exec, Communicator& comm, const Quantizer& q, Shard&& shard,
                      Full&& full, const gather_options& options, Scratch&& scratch, const short_text& agreed,
                      std::string problem) {
    using space = typename Execution::space;
    using T = element_of<Full, space>;
    static_assert(std::same_as<T, element_of<Shard, space>>, "shard and full must have the same element type");
    static_assert(codec_execution<Execution, Quantizer, T>, "no codec for this execution: include its entry header");

    const auto in = as_view<space>(shard);
    const auto out = as_view<space>(full);
    const view<std::byte, space> work = as_view<space>(scratch);
    const auto& ranks = comm.topology();
    const partition part(out.size(), ranks.size());

    if (problem.empty()) {
        problem = workspace_problem(work, quantized_all_gather_workspace_bytes(ranks, q, out.size(), options));
    }
    if (options.chunks < 1) {
        problem = chunks_problem(options.chunks);
    } else if (in.size() != part.size(comm.rank())) {
        problem = shard_problem(part, comm.rank(), in.size());
    }
    begin_collective(comm.world(), {"quantized_all_gather", out.size(), element_traits<T>::name, q.name(), agreed},
                     problem);
    if (out.size() == 0) return;

    const chunking cut(part.slice_size(), options.chunks, static_cast<std::size_t>(Quantizer::block_size));
    // The messages of one chunk.
    struct chunk_messages {
        std::size_t bytes;  // of each
        std::byte* all;
    };
    const auto messages_of = [&](std::size_t c) {
        return chunk_messages{wire_bytes(q, cut.count(c)),
                              work.data() + c * static_cast<std::size_t>(ranks.size()) * wire_bytes(q, cut.chunk)};
    };

    // What was enqueued before may still use the workspace.
    exec.across.wait(exec.inside.record());
    // All of the shard, before any of it may be overwritten: it may lie anywhere in full.
    for (std::size_t c = 0; c != cut.chunks; ++c) {
        const chunk_messages m = messages_of(c);
        const slices own = slices::single(in.size(), c * cut.chunk, cut.count(c), part.offset(comm.rank()));
        codec<Execution>::encode(exec.across, q, in.data(), own, own_message(comm, m.all, m.bytes));
    }
    for (std::size_t c = 0; c != cut.chunks; ++c) {
        const chunk_messages m = messages_of(c);
        gather_across(exec.across, comm, m.all, m.bytes);
        exec.inside.wait(exec.across.record());
        gather_inside(exec.inside, comm, m.all, m.bytes);
        const slices of_all{part, ranks.order(), c * cut.chunk, cut.count(c), 0, ranks.size()};
        codec<Execution>::decode(exec.inside, q, m.all, of_all, out.data());
    }
}

}  // namespace detail

/// Gathers every rank's shard into `full`, moving quantized blocks in place of elements.
///
/// Shapes    full [n]; shard [partition(n, ranks).size(rank)], that is n / ranks where it divides; scratch as
///           quantized_all_gather_workspace_bytes(...), aligned to 16 bytes
/// Result    full == the shards in rank order, each through decode(encode(...)), the caller's own included, so that all
///           ranks hold the same bits, which do not depend on execution or transport, nor on chunks, but of a
///           message_scaled_quantizer
/// In place  shard may lie inside full
/// Moves     two-level: each message across nodes once to the ranks of the same index, then inside the node
/// Order     enqueued on both executions; complete when `inside` is (if it throws, when both are); host{} has finished on
///           return. Arrays, communicator and both executions must outlive the work
/// Requires  the same n, element type, quantizer and options on all ranks; with two executions on MPI,
///           MPI_THREAD_MULTIPLE
/// Throws    precondition_error before any message; on every rank alike if what is wrong is wrong on every rank or the
///           transport is `checked`
/// Source    ZeRO++ (arXiv 2306.10209), section 3.1, qwZ
template <execution Execution, class Communicator, quantizer Quantizer, array_in<typename Execution::space> Shard,
          mutable_array_in<typename Execution::space> Full, mutable_array_in<typename Execution::space> Scratch>
void quantized_all_gather(const pipeline<Execution>& exec, Communicator& comm, const Quantizer& q, Shard&& shard,
                          Full&& full, const gather_options& options, Scratch&& scratch) {
    short_text agreed;
    if (options.chunks > 1) agreed.append("in ").append(options.chunks).append(" chunks");
    detail::gather_quantized(exec, comm, q, shard, full, options, scratch, agreed, {});
}

/// The same in one chunk, with both hops on one execution, one after the other.
template <execution Execution, class Communicator, quantizer Quantizer, array_in<typename Execution::space> Shard,
          mutable_array_in<typename Execution::space> Full, mutable_array_in<typename Execution::space> Scratch>
void quantized_all_gather(const Execution& exec, Communicator& comm, const Quantizer& q, Shard&& shard, Full&& full,
                          Scratch&& scratch) {
    detail::gather_quantized(pipeline<Execution>{exec, exec}, comm, q, shard, full, {}, scratch, {}, {});
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
    const short_text agreed = short_text("stored at version ").append(version);
    detail::gather_quantized(pipeline<Execution>{exec, exec}, comm, q, shard, full, {}, scratch, agreed, problem);
    secondary.store(exec, full, version);
}

/// The same with a workspace of its own, for first use: allocates, and blocks until the work is complete.
template <execution Execution, class Communicator, quantizer Quantizer, array_in<typename Execution::space> Shard,
          mutable_array_in<typename Execution::space> Full>
void quantized_all_gather(const Execution& exec, Communicator& comm, const Quantizer& q, Shard&& shard, Full&& full) {
    using space = typename Execution::space;
    workspace<space> scratch(quantized_all_gather_workspace_bytes(comm.topology(), q, as_view<space>(full).size()));
    detail::run_to_completion(exec, comm.world(),
                              [&] { quantized_all_gather(exec, comm, q, shard, full, scratch.view()); });
}

}  // namespace zeropp
