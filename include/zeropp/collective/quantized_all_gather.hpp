#pragma once
/// \file
/// qwZ: the weight all-gather of ZeRO-3, moving quantized blocks in place of elements.

#include <zeropp/codec/codec.hpp>
#include <zeropp/collective/moves.hpp>
#include <zeropp/collective/options.hpp>
#include <zeropp/collective/pipeline.hpp>
#include <zeropp/collective/prologue.hpp>
#include <zeropp/core/view.hpp>
#include <zeropp/core/workspace.hpp>
#include <zeropp/execution/execution.hpp>
#include <zeropp/layout/chunking.hpp>
#include <zeropp/layout/divided.hpp>
#include <zeropp/layout/wire_layout.hpp>
#include <zeropp/topology/topology.hpp>
#include <zeropp/transport/communicator.hpp>

#include <concepts>
#include <cstddef>
#include <string>
#include <type_traits>

namespace zeropp {

namespace detail {

/// Chunks of an all-gather with Q.
template <quantizer Q, class Division>
typename Division::chunks gather_chunks(const Division& whole, int chunks) {
    return {whole, chunks, static_cast<std::size_t>(Q::block_size)};
}

/// Bytes of the messages of all slots and chunks.
template <quantizer Q, topology Topology, class Division>
std::size_t gather_bytes(const Division& whole, const Topology& ranks, int chunks) {
    const auto cut = gather_chunks<Q>(whole, chunks);
    std::size_t bytes = 0;
    for (std::size_t c = 0; c != cut.size(); ++c) bytes += wire_bytes_of<Q>(cut[c]);
    return static_cast<std::size_t>(slot_count(ranks)) * bytes;
}

/// Encodes this rank's shards, and gathers and decodes all ranks', chunk by chunk.
template <execution Execution, class Communicator, quantizer Q, class Division, class Shard, class Full>
void gather_and_decode(const pipeline<Execution>& exec, Communicator& comm, const Q& q, const Division& whole,
                       int chunks, const Shard& in, const Full& out, std::byte* work) {
    using codec = zeropp::codec<Execution>;
    const auto& ranks = comm.topology();
    const auto cut = gather_chunks<Q>(whole, chunks);
    // In full itself, unless that could overwrite the shard before it is read.
    std::byte* const in_place =
        in.overlaps_elsewhere(out, whole, comm.rank()) ? nullptr : messages_in_place<Q>(out, cut[0], ranks);
    std::byte* const first = in_place != nullptr ? in_place : work;
    // The whole shard, before any of it may be overwritten: it may lie anywhere in full.
    std::byte* messages = first;
    for (std::size_t c = 0; c != cut.size(); ++c) {
        const auto chunk = cut[c];
        if (chunk.sections() == 0) continue;
        const std::size_t bytes = wire_bytes_of<Q>(chunk);
        std::byte* const own = comm.own(messages, bytes);
        if (in_place == nullptr || address_of(only_tensor(in)) != address_of(own)) {
            codec::write(exec.intra_node, in_phase(q, noise_phase::gather), in.tensor(), chunk.in_own(comm.rank()),
                         own);
        }
        messages += static_cast<std::size_t>(slot_count(ranks)) * bytes;
    }
    exec.inter_node.wait(exec.intra_node.record());
    messages = first;
    for (std::size_t c = 0; c != cut.size(); ++c) {
        const auto chunk = cut[c];
        if (chunk.sections() == 0) continue;
        const std::size_t bytes = wire_bytes_of<Q>(chunk);
        gather_across(exec.inter_node, comm, messages, bytes);
        exec.intra_node.wait(exec.inter_node.record());
        gather_within(exec.intra_node, comm, messages, bytes);
        if (in_place == nullptr) {
            codec::read(exec.intra_node, one_message{q, messages}, chunk.in_slots(ranks.order(), 0, slot_count(ranks)),
                        out.tensor());
        }
        messages += static_cast<std::size_t>(slot_count(ranks)) * bytes;
    }
}

}  // namespace detail

/// Bytes of workspace that quantized_all_gather needs for `tensors`, an element count or a tensor_list of whole
/// tensors: one message for each slot (`slot_count`) and chunk.
template <topology Topology, quantizer Quantizer>
std::size_t quantized_all_gather_workspace_bytes(const Topology& ranks, const Quantizer&, const tensors_shape& tensors,
                                                 const gather_options& options = {}) {
    return detail::over_ranks(ranks, tensors, [&](const auto& whole) {
        return detail::largest_for_chunks(
            options.chunks, ranks, detail::wire_bytes_of<Quantizer>(whole),
            [&](int chunks) { return detail::gather_bytes<Quantizer>(whole, ranks, chunks); });
    });
}

/// Gathers every rank's shard into `full`, moving quantized blocks in place of elements.
///
/// Shapes    full [n]; shard [partition(n, ranks).size(rank)], that is n / ranks where it divides; scratch as
///           quantized_all_gather_workspace_bytes(...), aligned to 16 bytes. Or tensor_lists: full of whole tensors,
///           shard of this rank's shards
/// Result    full == the shards in rank order, each through decode(encode(...)), the caller's own included: the same
///           bits on all ranks. They do not depend on execution, transport or chunks
/// In place  shard may lie inside full
/// Moves     each message between nodes once, to the ranks of the same index, then within the node; with three levels,
///           between sites first. A list moves as one tensor: one message for each chunk
/// Order     enqueued on `exec`, or on both executions of a pipeline, where hops of chunks overlap; complete when
///           `intra_node` is (if it throws, when both are). host{} has finished on return. Arrays, lists, communicator
///           and executions must outlive the work. Without scratch, allocates a workspace and blocks until complete
/// Requires  the same n or list, element type, quantizer and options on all ranks, all with one execution or
///           all with a pipeline; with a pipeline on MPI, MPI_THREAD_MULTIPLE
/// Throws    precondition_error before any message; on every rank alike if the fault is on all or the transport is
///           `checked`
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
    const auto whole = out.over_ranks(ranks);
    const std::size_t message = detail::wire_bytes_of<Quantizer>(whole);
    const int chunks = detail::chunks_for(options.chunks, ranks, message, detail::overlaps_hops(on));

    detail::prologue call("quantized_all_gather", whole.elements(), element_traits<T>::name, ranks);
    call.quantize_with(q);
    call.agree(whole.text());
    if (chunks > 1) call.agree(short_text("in ").append(chunks).append(" chunks"));
    call.require_chunks(options.chunks);
    call.require([&] { return out.whole_problem(ranks); });
    call.require([&] { return in.shard_problem(whole, comm.rank()); });
    call.run(on, comm.world(), scratch, detail::gather_bytes<Quantizer>(whole, ranks, chunks), [&](std::byte* work) {
        if (whole.elements() != 0) detail::gather_and_decode(on, comm, q, whole, chunks, in, out, work);
    });
}

}  // namespace zeropp
