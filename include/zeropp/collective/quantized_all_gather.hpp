#pragma once
/// \file
/// qwZ: the weight all-gather of ZeRO-3, moving quantized blocks instead of elements.

#include <zeropp/codec/codec.hpp>
#include <zeropp/collective/moves.hpp>
#include <zeropp/collective/options.hpp>
#include <zeropp/collective/pipeline.hpp>
#include <zeropp/collective/prologue.hpp>
#include <zeropp/core/view.hpp>
#include <zeropp/execution/execution.hpp>
#include <zeropp/layout/operands.hpp>
#include <zeropp/layout/schedule.hpp>
#include <zeropp/layout/wire_format.hpp>
#include <zeropp/topology/topology.hpp>

#include <array>
#include <cstddef>

namespace zeropp {

namespace detail {

/// Arguments of an all-gather that all its chunks share: `in` are this rank's shards, `out` the whole tensors.
template <execution Execution, class Communicator, quantizer Q, class Sizes, class Shard, class Full>
struct all_gather_call {
    const pipeline<Execution>& exec;
    Communicator& comm;
    const Q& q;
    const Sizes& sizes;
    const Shard& in;
    const Full& out;

    /// Enqueues the all-gather, in the workspace `work`: encodes this rank's shards, then gathers and decodes the
    /// shards of all ranks, chunk by chunk.
    void enqueue(std::byte* work) const {
        using codec = zeropp::codec<Execution>;
        const auto& ranks = comm.topology();
        const int slots = slot_count(ranks);
        const auto of_slots = static_cast<std::size_t>(slots);
        // Messages lie in `out` itself, unless they could overwrite a shard that is not yet read.
        std::byte* const in_place = in.overlaps_elsewhere(out, sizes.whole, comm.rank())
                                        ? nullptr
                                        : messages_in_place<Q>(out, sizes.cut[0], ranks);
        std::byte* const first = in_place != nullptr ? in_place : work;
        // Encodes the whole shard before any of it may be overwritten, because the shard may lie anywhere in `out`.
        sizes.for_each(first, of_slots, [&](std::size_t c, std::byte* messages, std::size_t bytes) {
            std::byte* const own = comm.own(messages, bytes);
            if (in_place != nullptr && address_of(only_tensor(in)) == address_of(own)) return;
            codec::write(exec.intra_node, in_phase(q, noise_phase::gather), in.tensor(),
                         sizes.cut[c].in_own(comm.rank()), own);
        });
        start_after(exec.inter_node, exec.intra_node);
        sizes.for_each(first, of_slots, [&](std::size_t c, std::byte* messages, std::size_t bytes) {
            gather_across(exec.inter_node, comm, messages, bytes);
            start_after(exec.intra_node, exec.inter_node);
            gather_within(exec.intra_node, comm, messages, bytes);
            if (in_place != nullptr) return;
            start_after(exec.decode, exec.intra_node);
            codec::read(exec.decode, one_message{q, messages}, sizes.cut[c].in_slots(ranks.order(), 0, slots),
                        out.tensor());
        });
        if (in_place == nullptr) start_after(exec.intra_node, exec.decode);
    }
};

}  // namespace detail

/// Bytes of workspace that quantized_all_gather needs: one message for each chunk and slot. `slot_count` gives the
/// number of slots. `tensors` is an element count, or a tensor_list of whole tensors.
template <topology Topology, quantizer Quantizer>
std::size_t quantized_all_gather_workspace_bytes(const Topology& ranks, const Quantizer&, const tensors_shape& tensors,
                                                 const gather_options& options = {}) {
    return tensors.divided({ranks.size()}, [&](const auto& whole) {
        return detail::gather_workspace(ranks, whole, format_of<Quantizer>, options.chunks);
    });
}

/// Gathers every rank's shard into `full`, moving quantized blocks in place of elements.
///
/// Shapes    full [n]; shard [partition(n, ranks).size(rank)], that is n / ranks if ranks divides n; scratch as
///           quantized_all_gather_workspace_bytes(...), aligned to 16 bytes. Or tensor_lists: full of whole tensors,
///           shard of this rank's shards
/// Result    full == the shards in rank order, each through decode(encode(...)), the caller's own included. The bits
///           are equal on all ranks, and do not depend on execution, transport or chunks
/// In place  shard may lie inside full
/// Moves     each message between nodes once, to the ranks of the same index, then within the node; with three levels,
///           between sites first. A list moves as one tensor: one message for each chunk
/// Order     enqueued on `exec`, or on the executions of a pipeline, where hops of chunks overlap; complete when
///           `intra_node` is (after a throw, when all are). host{} has finished on return. Arrays, lists, communicator
///           and executions must outlive the work. Without scratch, allocates a workspace and blocks until complete
/// Requires  the same n or list, element type, quantizer and options on all ranks, all with one execution or
///           all with a pipeline; with a pipeline on MPI, MPI_THREAD_MULTIPLE
/// Throws    precondition_error for wrong arguments, before any message; on every rank alike if the fault is on all
///           ranks or the transport is `checked`
/// Source    ZeRO++ (arXiv 2306.10209), section 3.1, qwZ
template <execution_or_pipeline Exec, class Communicator, quantizer Quantizer, tensors_in<space_of<Exec>> Shard,
          mutable_tensors_in<space_of<Exec>> Full, scratch_in<space_of<Exec>> Scratch = none>
void quantized_all_gather(const Exec& exec, Communicator& comm, const Quantizer& q, Shard&& shard, Full&& full,
                          const gather_options& options = {}, Scratch&& scratch = {}) {
    using space = space_of<Exec>;
    const pipeline on(exec);
    using execution_type = typename decltype(on)::execution_type;
    using T = typename detail::shared_element<space, Full, Shard>::type;
    static_assert(codec_execution<execution_type, Quantizer, T>,
                  "no codec for this execution: include its entry header");

    const auto in = detail::operand_of<space>(shard);
    const auto out = detail::operand_of<space>(full);
    const auto& ranks = comm.topology();
    const auto whole = out.divided({ranks.size()});
    const std::size_t message = format_of<Quantizer>.bytes_of(whole);
    const int chunks = detail::chunks_for(options.chunks, ranks, message, detail::overlaps_hops(on));
    const detail::schedule sizes(whole, chunks, std::array{format_of<Quantizer>});

    detail::prologue call("quantized_all_gather", whole.elements(), element_traits<T>::name, ranks);
    call.quantize_with(q);
    call.agree(whole.text());
    if (chunks > 1) call.agree(short_text("in ").append(chunks).append(" chunks"));
    call.require_chunks(options.chunks);
    call.require([&] { return out.whole_problem(ranks); });
    call.require([&] { return in.shard_problem(whole, comm.rank()); });
    call.run(on, comm.world(), scratch, detail::gather_bytes(ranks, sizes), [&](std::byte* work) {
        if (whole.elements() != 0) detail::all_gather_call{on, comm, q, sizes, in, out}.enqueue(work);
    });
}

}  // namespace zeropp
