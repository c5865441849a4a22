#pragma once
/// \file
/// qgZ: the gradient reduce-scatter of ZeRO-3 as two quantized all-to-all hops.

#include <zeropp/codec/codec.hpp>
#include <zeropp/collective/error_feedback.hpp>
#include <zeropp/collective/pipeline.hpp>
#include <zeropp/collective/reduce_scatter_plan.hpp>
#include <zeropp/collective/run_to_completion.hpp>
#include <zeropp/core/view.hpp>
#include <zeropp/core/workspace.hpp>
#include <zeropp/execution/execution.hpp>
#include <zeropp/quantizer/wire_layout.hpp>
#include <zeropp/topology/chunking.hpp>
#include <zeropp/topology/topology.hpp>
#include <zeropp/transport/communicator.hpp>

#include <array>
#include <cstddef>
#include <string>

namespace zeropp {

/// Bytes of workspace that hierarchical_quantized_reduce_scatter needs for a tensor of `elements`: for each chunk in
/// flight (two at most), what it sends and receives on each hop.
template <topology Topology, quantizer Inside, quantizer Across>
std::size_t hierarchical_quantized_reduce_scatter_workspace_bytes(const Topology& ranks, const Inside& inside,
                                                                  const Across& across, std::size_t elements,
                                                                  const reduce_options& options = {}) {
    return detail::reduce_scatter_plan(ranks, inside, across, elements, options.chunks).workspace_bytes();
}

namespace detail {

/// The reduce-scatter, with what `memory` holds of earlier ones.
template <execution Execution, class Communicator, quantizer Inside, quantizer Across, class Full, class Shard,
          class Scratch, class Memory>
void reduce_scatter_quantized(const pipeline<Execution>& exec, Communicator& comm, const Inside& inside,
                              const Across& across, Full&& full, Shard&& shard, const reduce_options& options,
                              Scratch&& scratch, Memory& memory) {
    using space = typename Execution::space;
    using T = element_of<Shard, space>;
    static_assert(std::same_as<T, element_of<Full, space>>, "full and shard must have the same element type");
    static_assert(codec_execution<Execution, Inside, T> && codec_execution<Execution, Across, T>,
                  "no codec for this execution: include its entry header");
    using encoder = codec<Execution>;

    const auto in = as_view<space>(full);
    const auto out = as_view<space>(shard);
    const view<std::byte, space> work = as_view<space>(scratch);
    const auto& ranks = comm.topology();
    const detail::reduce_scatter_plan plan(ranks, inside, across, in.size(), options.chunks);

    std::string problem = workspace_problem(work, plan.workspace_bytes());
    if (options.chunks < 1) {
        problem = chunks_problem(options.chunks);
    } else if (out.size() != plan.part.size(comm.rank())) {
        problem = shard_problem(plan.part, comm.rank(), out.size());
    } else if (detail::overlaps_elsewhere(in, out, plan.part.offset(comm.rank()))) {
        problem =
            "expected a shard that is this rank's slice of full or apart from it, given one that overlaps elsewhere";
    }
    if (problem.empty()) problem = memory.problem(ranks, in.size());
    const short_text described = options.text().append(std::string_view(memory.text()));
    short_text quantizers = inside.name();
    quantizers.append(" + ").append(std::string_view(short_text(across.name())));
    begin_collective(
        comm.world(),
        {"hierarchical_quantized_reduce_scatter", in.size(), element_traits<T>::name, quantizers, described}, problem);
    if (in.size() == 0) {
        // A use as any other: what counts uses, or undoes one, does not ask for sizes.
        memory.advance();
        return;
    }

    const finish last{options.operation == reduction::mean ? static_cast<float>(ranks.size()) : 1.0f,
                      options.accumulate};
    const int groups = ranks.groups();
    const int group_size = ranks.group_size();
    // The buffers of chunk c serve chunk c + 2, once chunk c has been finished.
    std::array<typename Execution::event, 2> finished{exec.across.record(), exec.across.record()};

    for (std::size_t c = 0; c != plan.chunks; ++c) {
        const std::size_t begin = c * plan.chunk;
        const std::size_t count = plan.count(c);
        const auto buffers = plan.buffers(work.data(), c);
        const slices to_all{plan.part, ranks.order(), begin, count, 0, ranks.size()};
        const slices own = slices::single(out.size(), begin, count);
        exec.inside.wait(finished[c % 2]);

        if (plan.hop_inside) {
            encoder::encode(exec.inside, inside, in.data(), to_all, buffers.inside_send, memory.inside());
            const std::size_t bytes = static_cast<std::size_t>(groups) * wire_bytes(inside, count);
            comm.group().all_to_all(exec.inside, buffers.inside_send, buffers.inside_receive, bytes);
            if (!plan.hop_across) {
                encoder::reduce_decode(exec.inside, inside, buffers.inside_receive, group_size, own, out.data(), last);
                continue;
            }
            const slices to_counterparts{plan.part, ranks.order(), begin, count, comm.index() * groups, groups};
            encoder::reduce_encode(exec.inside, inside, buffers.inside_receive, group_size, to_counterparts, across,
                                   buffers.across_send, memory.across());
        } else {
            encoder::encode(exec.inside, across, in.data(), to_all, buffers.across_send, memory.across());
        }
        exec.across.wait(exec.inside.record());
        comm.across().all_to_all(exec.across, buffers.across_send, buffers.across_receive, wire_bytes(across, count));
        encoder::reduce_decode(exec.across, across, buffers.across_receive, groups, own, out.data(), last);
        finished[c % 2] = exec.across.record();
    }
    exec.inside.wait(exec.across.record());
    memory.advance();
}

}  // namespace detail

/// Reduces every rank's gradient and leaves each rank its slice, moving quantized blocks in place of elements: inside the
/// node with the quantizer `inside`, then across nodes with `across`. Only 1/k of the gradient crosses nodes from each of
/// the node's k ranks.
///
/// Shapes    full [n]; shard [partition(n, ranks).size(rank)], that is n / ranks where it divides; scratch as
///           hierarchical_quantized_reduce_scatter_workspace_bytes(...), aligned to 16 bytes
/// Result    shard == this rank's slice of the sum or mean. Each node's ranks are summed in float, in order of index,
///           then quantized; then nodes are summed in float, in order. A single group takes the inside hop alone, groups
///           of one the across hop alone. The bits do not depend on execution or transport, nor on
///           chunks, but of a message_scaled_quantizer
/// In place  shard may be this rank's slice of full; otherwise they must not overlap. full is not changed elsewhere
/// Order     enqueued on both executions; complete when `inside` is (if it throws, when both are); host{} has finished on
///           return. Arrays, communicator and both executions must outlive the work
/// Requires  the same n, element type, quantizers and options on all ranks; with two executions on MPI,
///           MPI_THREAD_MULTIPLE
/// Throws    precondition_error before any message; on every rank alike if what is wrong is wrong on every rank or the
///           transport is `checked`
/// Source    ZeRO++ (arXiv 2306.10209), section 3.3, qgZ
template <execution Execution, class Communicator, quantizer Inside, quantizer Across,
          array_in<typename Execution::space> Full, mutable_array_in<typename Execution::space> Shard,
          mutable_array_in<typename Execution::space> Scratch>
void hierarchical_quantized_reduce_scatter(const pipeline<Execution>& exec, Communicator& comm, const Inside& inside,
                                           const Across& across, Full&& full, Shard&& shard,
                                           const reduce_options& options, Scratch&& scratch) {
    no_error_feedback memory;
    detail::reduce_scatter_quantized(exec, comm, inside, across, full, shard, options, scratch, memory);
}

/// The same with error feedback: `memory` adds what quantization lost the last time to this gradient, on both hops, and
/// keeps what it loses now. The bits depend on as little.
template <execution Execution, class Communicator, quantizer Inside, quantizer Across,
          array_in<typename Execution::space> Full, mutable_array_in<typename Execution::space> Shard,
          mutable_array_in<typename Execution::space> Scratch, class Storage>
void hierarchical_quantized_reduce_scatter(const pipeline<Execution>& exec, Communicator& comm, const Inside& inside,
                                           const Across& across, Full&& full, Shard&& shard,
                                           const reduce_options& options, Scratch&& scratch,
                                           error_feedback<Inside, Across, Storage, typename Execution::space>& memory) {
    detail::reduce_scatter_quantized(exec, comm, inside, across, full, shard, options, scratch, memory);
}

/// The same with both hops on one execution, one after the other.
template <execution Execution, class Communicator, quantizer Inside, quantizer Across,
          array_in<typename Execution::space> Full, mutable_array_in<typename Execution::space> Shard,
          mutable_array_in<typename Execution::space> Scratch>
void hierarchical_quantized_reduce_scatter(const Execution& exec, Communicator& comm, const Inside& inside,
                                           const Across& across, Full&& full, Shard&& shard,
                                           const reduce_options& options, Scratch&& scratch) {
    hierarchical_quantized_reduce_scatter(pipeline<Execution>{exec, exec}, comm, inside, across, full, shard, options,
                                          scratch);
}

template <execution Execution, class Communicator, quantizer Inside, quantizer Across,
          array_in<typename Execution::space> Full, mutable_array_in<typename Execution::space> Shard,
          mutable_array_in<typename Execution::space> Scratch, class Storage>
void hierarchical_quantized_reduce_scatter(const Execution& exec, Communicator& comm, const Inside& inside,
                                           const Across& across, Full&& full, Shard&& shard,
                                           const reduce_options& options, Scratch&& scratch,
                                           error_feedback<Inside, Across, Storage, typename Execution::space>& memory) {
    hierarchical_quantized_reduce_scatter(pipeline<Execution>{exec, exec}, comm, inside, across, full, shard, options,
                                          scratch, memory);
}

/// The same with a workspace of its own, for first use: allocates, and blocks until the work is complete.
template <execution Execution, class Communicator, quantizer Inside, quantizer Across,
          array_in<typename Execution::space> Full, mutable_array_in<typename Execution::space> Shard>
void hierarchical_quantized_reduce_scatter(const Execution& exec, Communicator& comm, const Inside& inside,
                                           const Across& across, Full&& full, Shard&& shard,
                                           const reduce_options& options = {}) {
    using space = typename Execution::space;
    const std::size_t elements = as_view<space>(full).size();
    workspace<space> scratch(
        hierarchical_quantized_reduce_scatter_workspace_bytes(comm.topology(), inside, across, elements, options));
    detail::run_to_completion(exec, comm.world(), [&] {
        hierarchical_quantized_reduce_scatter(exec, comm, inside, across, full, shard, options, scratch.view());
    });
}

}  // namespace zeropp
