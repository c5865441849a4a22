#pragma once
/// \file
/// qgZ: the gradient reduce-scatter of ZeRO-3 as quantized all-to-all hops, one along each level of a topology.

#include <zeropp/codec/codec.hpp>
#include <zeropp/collective/error_feedback.hpp>
#include <zeropp/collective/moves.hpp>
#include <zeropp/collective/options.hpp>
#include <zeropp/collective/pipeline.hpp>
#include <zeropp/collective/prologue.hpp>
#include <zeropp/layout/chunking.hpp>
#include <zeropp/layout/operands.hpp>
#include <zeropp/layout/schedule.hpp>
#include <zeropp/topology/topology.hpp>

#include <array>
#include <cstddef>
#include <string>

namespace zeropp {

namespace detail {
/// Enqueues the reduction `call`, a reduction_call, chunk by chunk. Decodes the sums, divided by `divisor`, into this
/// rank's shards `out`, or adds them to `out` if `last` says so.
template <class Call, class Shard>
void reduce_and_decode(const Call& call, const Shard& out, float divisor, epilogue last) {
    const auto& exec = call.exec;
    join(exec);
    // Ends of the work of the last two chunks. Chunk c + 2 uses the buffers of chunk c, so it starts after that chunk's
    // end.
    std::array<crossed_work<typename Call::execution_type>, 2> finished;
    const std::size_t chunks = call.plan.sizes.cut.size();
    for (std::size_t c = 0; c != chunks; ++c) {
        const auto chunk = call.plan.sizes.cut[c];
        start_after(exec, finished[c % 2]);
        call.reduce(c, [&](const auto& on, const auto& q, const std::byte* messages, int contributors) {
            Call::codec::read(on, message_sum{q, messages, contributors, divisor}, chunk.in_own(call.comm.rank()),
                              out.tensor(), last);
        });
        finished[c % 2] = crossed(exec);
    }
    start_after(exec, finished[(chunks - 1) % 2]);
}

}  // namespace detail

/// Bytes of workspace that hierarchical_quantized_reduce_scatter needs. They hold, for each hop, the messages of at
/// most two chunks to send and to receive. `tensors` is an element count, or a tensor_list of whole tensors.
template <topology Topology, reduction_hops Hops>
std::size_t hierarchical_quantized_reduce_scatter_workspace_bytes(const Topology& ranks, const Hops&,
                                                                  const tensors_shape& tensors,
                                                                  const reduce_options& options = {}) {
    return tensors.divided({ranks.size()}, [&](const auto& whole) {
        return detail::reduce_workspace(ranks, whole, detail::formats_of<detail::hops_of<Hops>>, options.chunks);
    });
}

/// Reduces every rank's gradient and leaves each rank a shard of the result, moving quantized blocks in place of
/// elements. Messages move along one level of the topology after the other: within the node, then between nodes and,
/// with three levels, then between sites. Each level has a quantizer of `by_hop`. Each of a node's k ranks sends only
/// 1/k of the gradient to other nodes. Each of a site's m ranks sends only 1/m to other sites.
///
/// Shapes    full [n]; shard [partition(n, ranks).size(rank)], that is n / ranks if ranks divides n; scratch as
///           hierarchical_quantized_reduce_scatter_workspace_bytes(...), aligned to 16 bytes. Or tensor_lists: full of
///           whole tensors, shard of this rank's shards
/// Result    shard == this rank's shard of the sum or mean. A node's ranks are summed in float, in order of index, then
///           quantized; then nodes are summed in float, in order. With three levels, a site's nodes are summed and
///           quantized, then sites are summed. A level without peers takes no hop, and its quantizer is not used. So a
///           single node takes the intra-node hop alone, and nodes of one rank the inter-node hop alone. The bits do
///           not depend on execution, transport or chunks
/// In place  shard may be this rank's shard of full; otherwise shard and full must not overlap. full is not changed
///           elsewhere
/// Order     enqueued on `exec`, or on both executions of a pipeline, where hops of chunks overlap; complete when
///           `intra_node` is (after a throw, when both are). host{} has finished on return. Arrays, lists, communicator
///           and executions must outlive the work. Without scratch, allocates a workspace and blocks until complete
/// Feedback  with `with_error_feedback` in place of `by_hop`, adds the residuals of the last call on every hop, and
///           keeps new ones. The bits still do not depend on execution, transport or chunks
/// Requires  a quantizer for each level, from level 0 on; the same n or list, element type, quantizers and options on
///           all ranks; all ranks with one execution or all with a pipeline; with a pipeline on MPI,
///           MPI_THREAD_MULTIPLE
/// Throws    precondition_error for wrong arguments, before any message; on every rank alike if the fault is on all
///           ranks or the transport is `checked`
/// Source    ZeRO++ (arXiv 2306.10209), section 3.3, qgZ
template <execution_or_pipeline Exec, class Communicator, reduction_hops Hops, tensors_in<space_of<Exec>> Full,
          mutable_tensors_in<space_of<Exec>> Shard, scratch_in<space_of<Exec>> Scratch = none>
void hierarchical_quantized_reduce_scatter(const Exec& exec, Communicator& comm, const Hops& by_hop, Full&& full,
                                           Shard&& shard, const reduce_options& options = {}, Scratch&& scratch = {}) {
    using space = space_of<Exec>;
    const pipeline on(exec);
    using execution_type = typename decltype(on)::execution_type;
    using T = typename detail::shared_element<space, Shard, Full>::type;
    using quantizers = detail::hops_of<Hops>;
    constexpr int levels = Communicator::levels;
    static_assert(detail::reduce_scatters<quantizers, levels>,
                  "a reduce-scatter has a quantizer for each level, and no all-gather phase");
    static_assert(detail::has_codecs<execution_type, quantizers, T>,
                  "no codec for this execution: include its entry header");

    const auto in = detail::operand_of<space>(full);
    const auto out = detail::operand_of<space>(shard);
    const auto& ranks = comm.topology();
    const auto whole = in.divided({ranks.size()});
    const auto& formats = detail::formats_of<quantizers>;
    const std::size_t message = formats[levels - 1].bytes_of(whole);
    const int chunks = detail::chunks_for(options.chunks, ranks, message, detail::overlaps_hops(on));

    const detail::reduction_plan plan(ranks, detail::schedule(whole, chunks, formats));
    const quantizers& q = detail::quantizers_of(by_hop);
    auto&& memory = detail::residuals_of(by_hop);
    detail::prologue call("hierarchical_quantized_reduce_scatter", whole.elements(), element_traits<T>::name, ranks);
    detail::agree_on_reduction(call, q, whole, options.text(chunks), memory);
    call.require_chunks(options.chunks);
    call.require([&] { return in.whole_problem(ranks); });
    call.require([&] { return out.shard_problem(whole, comm.rank()); });
    call.require([&]() -> std::string {
        if (!out.overlaps_elsewhere(in, whole, comm.rank())) return {};
        return "expected a shard in its place in full or apart from it, given one that overlaps elsewhere";
    });
    call.require([&] { return memory.problem(whole, ranks); });
    call.run(on, comm.world(), scratch, plan.workspace_bytes(), [&](std::byte* work) {
        if (whole.elements() != 0) {
            detail::reduce_and_decode(detail::reduction_call{on, comm, q, plan, in, work, memory}, out,
                                      detail::divisor_of(options.operation, ranks.size()),
                                      {.accumulate = options.accumulate});
        }
        // A call without elements counts as a use of error feedback, too, because ranks compare the number of uses.
        memory.advance();
    });
}

}  // namespace zeropp
