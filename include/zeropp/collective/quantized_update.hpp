#pragma once
/// \file
/// Updates weights that every node keeps whole: only differences move, and only between nodes.

#include <zeropp/codec/codec.hpp>
#include <zeropp/collective/options.hpp>
#include <zeropp/collective/pipeline.hpp>
#include <zeropp/collective/prologue.hpp>
#include <zeropp/collective/secondary_partition_gather.hpp>
#include <zeropp/collective/secondary_replica.hpp>
#include <zeropp/core/element.hpp>
#include <zeropp/core/error.hpp>
#include <zeropp/core/text.hpp>
#include <zeropp/core/view.hpp>
#include <zeropp/core/workspace.hpp>
#include <zeropp/execution/execution.hpp>
#include <zeropp/layout/chunking.hpp>
#include <zeropp/layout/divided.hpp>
#include <zeropp/quantizer/quantizer.hpp>
#include <zeropp/topology/columns.hpp>
#include <zeropp/topology/shard_owners.hpp>
#include <zeropp/topology/topology.hpp>
#include <zeropp/transport/communicator.hpp>
#include <zeropp/transport/transport.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>

namespace zeropp {

namespace detail {

/// Chunks of an update with Q that is gathered through `IntraNode`: whole blocks of both.
template <quantizer Q, quantizer IntraNode, class Division>
typename Division::chunks update_chunks(const Division& whole, int chunks) {
    return {whole, chunks, static_cast<std::size_t>(std::max(Q::block_size, IntraNode::block_size))};
}

/// Bytes of workspace: messages of all groups and chunks and, if `gathered`, of all slots and chunks, with room for
/// whole weights in one chunk.
template <quantizer Q, quantizer IntraNode, class Division, topology Topology>
std::size_t update_bytes(const Division& whole, const Topology& ranks, int chunks, bool gathered) {
    const auto cut = update_chunks<Q, IntraNode>(whole, chunks);
    std::size_t of_groups = 0;
    std::size_t of_slots = 0;
    for (std::size_t c = 0; c != cut.size(); ++c) {
        of_groups += wire_bytes_of<Q>(cut[c]);
        of_slots += wire_bytes_of<IntraNode>(cut[c]);
    }
    // Chunks of a list leave out padding between tensors.
    of_slots = gathered ? std::max(of_slots, wire_bytes_of<IntraNode>(whole)) : 0;
    return update_workspace(ranks, of_groups, of_slots);
}

/// Bytes of workspace of a call, whether its hops overlap or not.
template <quantizer Q, quantizer IntraNode, class Division, topology Topology>
std::size_t largest_update_bytes(const Division& whole, const Topology& ranks, const gather_options& options,
                                 bool gathered) {
    return largest_for_chunks(options.chunks, ranks, wire_bytes_of<Q>(whole),
                              [&](int chunks) { return update_bytes<Q, IntraNode>(whole, ranks, chunks, gathered); });
}

/// Why the owners' shards cannot reach all groups, as "expected ..., given ..."; empty if they can.
template <execution Execution, class Replica, class Communicator>
std::string spread_problem(const Replica& replica, Communicator& comm) {
    if (replica.owners().groups() == replica.groups() || can_broadcast<Execution>(comm.peers(Communicator::levels - 1)))
        return {};
    return "expected a transport that can broadcast, since " + replica.text().str() + ", given one that cannot";
}

/// Brings the owners' messages to all groups, each to its place in `messages`, one round's behind the other's. `own` is
/// this rank's message, if it has one, and may be in its place already.
template <execution Execution, class Communicator, class Replica>
void spread(const Execution& exec, Communicator& comm, const Replica& replica, const std::byte* own,
            std::byte* messages, std::size_t bytes) {
    const int owners = replica.owners().groups();
    comm.for_each_column([&](int round, int) {
        std::byte* const column = messages + static_cast<std::size_t>(round * owners) * bytes;
        if (owners == replica.groups()) {
            for (int l = Communicator::levels - 1; l > 0; --l) comm.gather_column(l, round, exec, own, column, bytes);
            return;
        }
        auto& ranks = comm.peers(Communicator::levels - 1, round);
        if constexpr (broadcasting_transport_on<std::remove_reference_t<decltype(ranks)>, Execution>) {
            ranks.broadcast(exec, own, column, bytes, owners);
        } else {
            throw precondition_error("secondary_replica", "a transport that can broadcast", "one that cannot");
        }
    });
}

/// Why an update to `version` is not the next one, as "expected ..., given ..."; empty if it is, or the first.
template <class Replica>
std::string version_problem(const Replica& replica, std::uint64_t version) {
    if (!replica.version() || *replica.version() + 1 == version) return {};
    return "expected a secondary replica of version " + std::to_string(version - 1) + ", given one of version " +
           std::to_string(*replica.version());
}

/// Enqueues the messages of an update in `chunks` chunks: whole weights if `replaces`, otherwise differences. Gathers
/// each chunk within the group if `out` is an operand.
template <execution Execution, class Communicator, class Quantizer, class Shard, class Replica, class Division,
          class Out>
void move_update(const pipeline<Execution>& on, Communicator& comm, const Quantizer& q, const Shard& in,
                 const Replica& replica, const Division& whole, bool replaces, int chunks, const Out& out,
                 std::byte* work) {
    using codec = zeropp::codec<Execution>;
    using IntraNode = typename Replica::quantizer_type;
    const shard_owners& owners = replica.owners();
    const int groups = owners.groups();
    const std::size_t slots = inter_node_slots(owners);
    const int rounds = comm.rounds().served(comm.index());
    const int in_chunks = replaces ? 1 : chunks;
    const auto cut = update_chunks<Quantizer, IntraNode>(whole, in_chunks);
    const auto bytes_of = [&](const auto& chunk) {
        return replaces ? replica.slot_bytes() : wire_bytes_of<Quantizer>(chunk);
    };
    // Whole weights arrive in the storage of the replica.
    std::byte* const first = replaces ? replica.slot(0) : work;
    std::byte* messages = first;
    for (std::size_t c = 0; c != cut.size(); ++c) {
        const auto chunk = cut[c];
        if (chunk.sections() == 0) continue;
        const std::size_t bytes = bytes_of(chunk);
        std::byte* const own = replica.own_message(messages, bytes);
        if (replica.owns() && replaces) {
            codec::write(on.intra_node, replica.exact(), in.tensor(), chunk.in_own(replica.owner()), own);
        } else if (replica.owns()) {
            codec::write(on.intra_node, in_phase(q, noise_phase::gather), difference{in.tensor(), replica.own(in)},
                         chunk.in_own(replica.owner()), own);
        }
        messages += slots * bytes;
    }
    on.inter_node.wait(on.intra_node.record());
    messages = first;
    [[maybe_unused]] std::byte* gathering = work + update_bytes<Quantizer, IntraNode>(whole, owners, chunks, false);
    for (std::size_t c = 0; c != cut.size(); ++c) {
        const auto chunk = cut[c];
        if (chunk.sections() == 0) continue;
        const std::size_t bytes = bytes_of(chunk);
        spread(on.inter_node, comm, replica, replica.own_message(messages, bytes), messages, bytes);
        on.intra_node.wait(on.inter_node.record());
        for (int j = 0; !replaces && j != rounds; ++j) {
            codec::read(on.intra_node, message_sum{q, messages + static_cast<std::size_t>(j * groups) * bytes},
                        replica.stored(chunk, j), replica.tensors(in), add_difference);
        }
        messages += slots * bytes;
        if constexpr (!std::same_as<Out, none>) {
            const auto of_out = update_chunks<Quantizer, IntraNode>(out.over_ranks(owners), in_chunks)[c];
            gather_stored(on.intra_node, comm, replica, of_out, cut.size() == 1, out, gathering);
            gathering += static_cast<std::size_t>(slot_count(owners)) * wire_bytes_of<IntraNode>(chunk);
        }
    }
}

}  // namespace detail

/// Bytes of workspace that quantized_update needs for `tensors`, an element count or a tensor_list of whole tensors, in
/// replicas that are gathered through `IntraNode`: one message for each chunk, round and group of owners. `ranks` is
/// the topology or shard_owners of the replica.
template <topology Topology, quantizer Quantizer, quantizer IntraNode>
std::size_t quantized_update_workspace_bytes(const Topology& ranks, const Quantizer&, const IntraNode&,
                                             const tensors_shape& tensors, const gather_options& options = {}) {
    return detail::over_ranks(ranks, tensors, [&](const auto& whole) {
        return detail::largest_update_bytes<Quantizer, IntraNode>(whole, ranks, options, false);
    });
}

/// Bytes of workspace of a quantized_update that gathers: besides, a message of `IntraNode` for each slot and chunk.
template <topology Topology, quantizer Quantizer, quantizer IntraNode>
std::size_t quantized_update_gather_workspace_bytes(const Topology& ranks, const Quantizer&, const IntraNode&,
                                                    const tensors_shape& tensors, const gather_options& options = {}) {
    return detail::over_ranks(ranks, tensors, [&](const auto& whole) {
        return detail::largest_update_bytes<Quantizer, IntraNode>(whole, ranks, options, true);
    });
}

/// Updates the replicas of all ranks to a version, `replica.to(version)`, by quantized differences to the ranks'
/// shards. A step changes weights by little, so that few bits say it well. The error of one difference is part of the
/// next. So after any number of updates, a replica is off by at most one difference's quantization error and the
/// rounding to its own element type. An empty replica gets whole weights, in its own element type.
///
/// `replica.to(version, full)` also gathers whole tensors, as secondary_partition_gather does: the weight all-gather of
/// a step with hpZ's memory. With a pipeline, one chunk is gathered within the group while others cross.
///
/// If only some groups own shards (replicas of shard_owners), ranks of the others make the same calls with an empty
/// shard of the same type: an array of no elements, or a tensor_list without tensors. Their replicas become equal to
/// the owners'.
///
/// Shapes    shard [partition(n, ranks).size(rank)], n as the replica's, ranks its owners(), rank its owner(), of any
///           element type: float for master weights beside a replica in bfloat16. Or a tensor_list of this rank's
///           shards of the replica's tensors. full [n], of any element type, or a tensor_list of whole tensors, where
///           shard is one of shards. Scratch as quantized_update_workspace_bytes(...), or with full as
///           quantized_update_gather_workspace_bytes(...), aligned to 16 bytes
/// Result    replica == replica + decode(encode(shard - replica)), in float, rounded to its element type: the same bits
///           in all groups. They do not depend on execution, transport or chunks. A block with a difference that is
///           not finite becomes NaN. An element of the replica that is not finite counts as 0: the update after it is
///           of finite weights again. full == the replicas, each part through their quantizer `IntraNode`; the same
///           bits on all ranks
/// Moves     each message between groups once, to the ranks of the same index, by an all_gather, or a broadcast of the
///           owners if not all groups own shards. Nothing within the group; with full, one message of `IntraNode` for
///           each of its other ranks, group and chunk
/// Order     enqueued on `exec`, or on both executions of a pipeline, where one chunk crosses while others are encoded
///           and added; complete when `intra_node` is (if it throws, when both are). host{} has finished on return.
///           Arrays, lists, replica, communicator and executions must outlive the work. Without scratch, allocates a
///           workspace and blocks until complete. If `exec` fails later, before or in this work, the storage does not
///           match the stamp: `invalidate` on all ranks
/// In place  shard must not overlap the replica's storage; it may lie inside full
/// Requires  the same n or list, element types, quantizer, options, owners and version on all ranks, and replicas that
///           are all empty or all at version - 1; all ranks with one execution or all with a pipeline; with a pipeline
///           on MPI, MPI_THREAD_MULTIPLE; if not all groups own shards, a transport that can broadcast
/// Throws    precondition_error before any message: sizes that do not fit, a shard on a rank that owns none, a
///           transport that cannot broadcast where it must, or a replica that has missed an update; on every rank alike
///           if the fault is on all or the transport is `checked`
/// Source    ZeRO++ (arXiv 2306.10209), hpZ, and SDP4Bit (arXiv 2410.15526), weight differences
template <execution_or_pipeline Exec, class Communicator, quantizer Quantizer, tensors_in<space_of<Exec>> Shard,
          class Replica, class Out, scratch_in<space_of<Exec>> Scratch = none>
void quantized_update(const Exec& exec, Communicator& comm, const Quantizer& q, Shard&& shard,
                      const replica_update<Replica, Out>& to, const gather_options& options = {},
                      Scratch&& scratch = {}) {
    using space = space_of<Exec>;
    const pipeline on(exec);
    using execution_type = typename decltype(on)::execution_type;
    using IntraNode = typename Replica::quantizer_type;
    using T = typename Replica::element_type;
    constexpr bool gathers = !std::same_as<Out, none>;
    static_assert(std::same_as<typename Replica::space, space>, "the replica must lie in the execution's memory space");
    static_assert(codec_execution<execution_type, Quantizer, T>,
                  "no codec for this execution: include its entry header");
    if constexpr (gathers) {
        static_assert(detail::is_tensor_list<std::remove_cvref_t<Shard>> == Out::is_list,
                      "shard and full must both be arrays, or both tensor_lists");
        static_assert(codec_execution<execution_type, IntraNode, typename Out::element_type>,
                      "no codec for this execution: include its entry header");
    }

    Replica& replica = to.replica;
    const auto in = detail::operand_of<space>(shard);
    const shard_owners& owners = replica.owners();
    const auto whole = replica.whole(in);
    const bool replaces = !replica.version();
    const int chunks =
        detail::chunks_for(options.chunks, owners, detail::wire_bytes_of<Quantizer>(whole), detail::overlaps_hops(on));

    detail::prologue call("quantized_update", replica.elements(), element_traits<T>::name, comm.topology());
    call.quantize_with(q);
    call.agree(agreed_text(replaces ? "whole, from " : "differences, from ")
                   .append(element_traits<detail::element_of_tensors<Shard, space>>::name)
                   .append(", version ")
                   .append(to.version));
    call.agree(replica.text());
    call.agree(whole.text());
    if (chunks > 1) call.agree(short_text("in ").append(chunks).append(" chunks"));
    call.require_chunks(options.chunks);
    call.require([&] { return replica.place_problem(comm.topology(), comm.rank()); });
    call.require([&] { return detail::spread_problem<execution_type>(replica, comm); });
    call.require([&] { return replica.shard_problem(in); });
    if constexpr (gathers) {
        call.quantize_with(replica.stored_as(), " then ");
        call.require([&] { return replica.tensors_problem(to.full); });
    }
    call.require([&] { return detail::version_problem(replica, to.version); });
    call.run(on, comm.world(), scratch, detail::update_bytes<Quantizer, IntraNode>(whole, owners, chunks, gathers),
             [&](std::byte* work) {
                 // A replica between two versions has none, if this throws.
                 replica.invalidate();
                 if (replica.elements() != 0) {
                     detail::move_update(on, comm, q, in, replica, whole, replaces, chunks, to.full, work);
                 }
                 replica.stamp(to.version);
             });
}

}  // namespace zeropp
