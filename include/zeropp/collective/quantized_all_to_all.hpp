#pragma once
/// \file
/// The all-to-all of experts, sequence parallelism and owners of parameters, moving quantized blocks.

#include <zeropp/codec/codec.hpp>
#include <zeropp/collective/pipeline.hpp>
#include <zeropp/collective/prologue.hpp>
#include <zeropp/execution/execution.hpp>
#include <zeropp/layout/operands.hpp>
#include <zeropp/layout/wire_format.hpp>
#include <zeropp/quantizer/quantizer.hpp>
#include <zeropp/topology/columns.hpp>
#include <zeropp/topology/topology.hpp>
#include <zeropp/transport/communicator.hpp>

#include <cstddef>
#include <string>
#include <type_traits>
#include <utility>

namespace zeropp {

namespace detail {

/// Enqueues a transposition of messages of `of.bytes` bytes: received[j][i] <- sent[i][j], for i < first and j <
/// second.
template <execution Execution>
void transpose(const Execution& exec, const message_buffers& of, int first, int second) {
    for (int i = 0; i != first; ++i) {
        for (int j = 0; j != second; ++j) {
            exec.copy(of.received + static_cast<std::size_t>(j * first + i) * of.bytes,
                      of.sent + static_cast<std::size_t>(i * second + j) * of.bytes, of.bytes);
        }
    }
}

/// Sends `messages`, one of `bytes` bytes for each slot's rank, to these ranks, level by level. Returns the address of
/// the messages that this rank gets from all slots' ranks: `messages`, or `other`, which has room for as many. Along a
/// level, a rank also sends its peers the messages that earlier levels have brought for them.
template <execution Execution, class Communicator>
std::byte* exchange_all(const Execution& exec, Communicator& comm, std::byte* messages, std::byte* other,
                        std::size_t bytes) {
    const auto& ranks = comm.topology();
    int from = 1;  // number of ranks from which this one has messages: they differ in earlier levels only
    for (int l = 0; l != Communicator::levels; ++l) {
        if (!has_hop(ranks, l)) continue;
        const int peers = extent(ranks, l);
        const std::size_t beyond = static_cast<std::size_t>(slots_beyond(ranks, l)) * bytes;
        if (from != 1) {
            transpose(exec, {messages, other, beyond}, from, peers);
            std::swap(messages, other);
        }
        comm.peers(l).all_to_all(exec, messages, other, static_cast<std::size_t>(from) * beyond);
        std::swap(messages, other);
        if (from != 1) {
            transpose(exec, {messages, other, beyond}, peers, from);
            std::swap(messages, other);
        }
        from *= peers;
    }
    return messages;
}

/// Why a tensor of the division `part` has no equal parts for all ranks, as "expected ..., given ..."; empty if it has.
inline std::string parts_problem(const partition& part) {
    const auto ranks = static_cast<std::size_t>(part.ranks());
    if (part.count() == ranks * part.slice_size()) return {};
    if (part.count() % ranks == 0) {
        return "expected shards of " + std::to_string(part.count() / ranks) + " elements, given shards of " +
               std::to_string(part.slice_size());
    }
    return "expected a multiple of " + std::to_string(ranks) + " elements, given " + std::to_string(part.count());
}
inline std::string parts_problem(const tensor_division& whole) { return parts_problem(whole.part()); }
/// Why a tensor of a list of the division `whole` has no equal parts for all ranks; empty if all tensors have.
inline std::string parts_problem(const list_division& whole) {
    for (std::size_t t = 0; t != whole.segments().size(); ++t) {
        const std::string problem = parts_problem(whole.segments()[t].part);
        if (!problem.empty()) return "of tensor " + std::to_string(t) + ", " + problem;
    }
    return {};
}

}  // namespace detail

/// Bytes of workspace that quantized_all_to_all needs: two messages for each rank. `tensors` is an element count, or a
/// tensor_list of whole tensors.
template <topology Topology, quantizer Quantizer>
std::size_t quantized_all_to_all_workspace_bytes(const Topology& ranks, const Quantizer&,
                                                 const tensors_shape& tensors) {
    return tensors.divided({ranks.size()}, [&](const auto& whole) {
        return 2 * static_cast<std::size_t>(slot_count(ranks)) * format_of<Quantizer>.bytes_of(whole);
    });
}

/// Sends each rank its part of `sent`, and puts the parts from all ranks into `received`, moving quantized blocks in
/// place of elements. Over several levels, the parts that a node's ranks have for one rank elsewhere cross together,
/// sent by that rank's counterpart in the node. That makes fewer and larger messages, of as many bytes.
///
/// Shapes    sent and received [n], n a multiple of the number of ranks; scratch as
///           quantized_all_to_all_workspace_bytes(...), aligned to 16 bytes. Or tensor_lists of whole tensors of the
///           same sizes, each with such an n and with equal shards
/// Result    part r of received == decode(encode(part `rank` of rank r's sent)), this rank's own included. Each part is
///           encoded once, whatever the levels. The bits do not depend on execution, transport or topology
/// In place  received may be sent, or overlap it: all parts are encoded before the first one is decoded
/// Moves     along each level, P / p messages to each other peer, for P ranks in all and p peers, this rank included
/// Order     enqueued on `exec`; host{} has finished on return. Arrays, lists, communicator and execution must outlive
///           the work. Without scratch, allocates a workspace and blocks until complete
/// Requires  the same n or list, element type and quantizer on all ranks; nodes of equal size
/// Throws    precondition_error for wrong arguments, before any message; on every rank alike if the fault is on all
///           ranks or the transport is `checked`
/// Source    the all-to-all of ZeRO++ (arXiv 2306.10209), section 3.3, without its sums
template <execution Execution, class Communicator, quantizer Quantizer, tensors_in<typename Execution::space> Sent,
          mutable_tensors_in<typename Execution::space> Received, scratch_in<typename Execution::space> Scratch = none>
void quantized_all_to_all(const Execution& exec, Communicator& comm, const Quantizer& q, Sent&& sent,
                          Received&& received, Scratch&& scratch = {}) {
    using space = typename Execution::space;
    using T = typename detail::shared_element<space, Received, Sent>::type;
    using codec = zeropp::codec<Execution>;
    static_assert(codec_execution<Execution, Quantizer, T>, "no codec for this execution: include its entry header");
    const auto in = detail::operand_of<space>(sent);
    const auto out = detail::operand_of<space>(received);
    const auto& ranks = comm.topology();
    const auto whole = in.divided({ranks.size()});

    detail::prologue call("quantized_all_to_all", whole.elements(), element_traits<T>::name, ranks);
    call.quantize_with(q);
    call.agree(whole.text());
    call.require([&]() -> std::string {
        return has_equal_groups(ranks) ? "" : "expected nodes of equal size, given " + group_sizes_text(ranks);
    });
    call.require([&] { return in.whole_problem(ranks); });
    call.require([&] { return detail::parts_problem(whole); });
    call.require([&] { return out.same_problem(in, ranks); });
    const std::size_t all = static_cast<std::size_t>(slot_count(ranks)) * format_of<Quantizer>.bytes_of(whole);
    call.run(pipeline(exec), comm.world(), scratch, 2 * all, [&](std::byte* work) {
        if (whole.elements() == 0) return;
        const typename std::remove_const_t<decltype(whole)>::chunks cut(whole, 1, Quantizer::block_size);
        const auto slots = cut[0].in_slots(ranks.order(), 0, slot_count(ranks));
        codec::write(exec, detail::in_phase(q, noise_phase::gather), in.tensor(), slots, work);
        // Without space for empty tensors at a list's beginning, so perhaps fewer than a whole shard's message.
        const std::size_t bytes = format_of<Quantizer>.bytes_of(slots);
        const std::byte* const messages = detail::exchange_all(exec, comm, work, work + all, bytes);
        codec::read(exec, one_message{q, messages},
                    cut.of(out.divided({ranks.size()}))[0].in_slots(ranks.order(), 0, slot_count(ranks)), out.tensor());
    });
}

}  // namespace zeropp
