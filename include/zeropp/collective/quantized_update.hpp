#pragma once
/// \file
/// Updates weights that every node keeps whole: only differences move, and only between nodes.

#include <zeropp/codec/codec.hpp>
#include <zeropp/collective/options.hpp>
#include <zeropp/collective/pipeline.hpp>
#include <zeropp/collective/prologue.hpp>
#include <zeropp/collective/secondary_replica.hpp>
#include <zeropp/core/element.hpp>
#include <zeropp/core/error.hpp>
#include <zeropp/core/text.hpp>
#include <zeropp/core/view.hpp>
#include <zeropp/execution/execution.hpp>
#include <zeropp/layout/exact_differences.hpp>
#include <zeropp/layout/operands.hpp>
#include <zeropp/layout/schedule.hpp>
#include <zeropp/layout/wire_format.hpp>
#include <zeropp/quantizer/quantizer.hpp>
#include <zeropp/topology/columns.hpp>
#include <zeropp/topology/shard_owners.hpp>
#include <zeropp/topology/topology.hpp>
#include <zeropp/transport/communicator.hpp>
#include <zeropp/transport/transport.hpp>

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

namespace zeropp {

namespace detail {

/// Why the owners' shards cannot reach all groups, as "expected ..., given ..."; empty if they can. If not all groups
/// own shards, the transport along the last level must be able to broadcast.
template <execution Execution, class Replica, class Communicator>
std::string spread_problem(const Replica& replica, Communicator& comm) {
    if (replica.owners().groups() == replica.groups() || can_broadcast<Execution>(comm.peers(Communicator::levels - 1)))
        return {};
    return "expected a transport that can broadcast, since " + replica.text().str() + ", given one that cannot";
}

/// Why the shards `in` cannot make the update `to`, as "expected ..., given ..."; empty if they can.
template <execution Execution, class Communicator, class Shard, class Replica, class Out>
std::string update_problem(Communicator& comm, const Shard& in, const replica_update<Replica, Out>& to) {
    const Replica& replica = to.replica;
    std::string problem = replica.place_problem(comm.topology(), comm.rank());
    if (problem.empty()) problem = spread_problem<Execution>(replica, comm);
    if (problem.empty()) problem = replica.shard_problem(in);
    if constexpr (!std::same_as<Out, none>) {
        if (problem.empty()) problem = replica.tensors_problem(to.full);
    }
    // An empty replica, which has no version, can be updated to any version.
    if (!problem.empty() || !replica.version() || *replica.version() + 1 == to.version) return problem;
    return "expected a secondary replica of version " + std::to_string(to.version - 1) + ", given one of version " +
           std::to_string(*replica.version());
}

/// Arguments of an update that all its chunks share.
template <execution Execution, class Communicator, difference_format Q, class Replica, class Sizes, class Shard,
          class Out>
struct update_call {
    using codec = zeropp::codec<Execution>;

    const pipeline<Execution>& on;
    Communicator& comm;
    const Q& q;
    const Replica& replica;
    const Sizes& sizes;  // chunks; bytes of messages between groups (format 0) and within a group (format 1)
    const Shard& in;
    const Out& out;  // the operand of whole tensors to gather, or none

    /// Enqueues an update in the workspace `work`. If `replaces`, it moves whole weights into the replica, in one
    /// chunk; otherwise it adds differences.
    void enqueue(bool replaces, std::byte* work) const {
        if (replaces) return replace(work);
        const update_buffers at(replica.owners(), sizes, !std::same_as<Out, none>);
        if constexpr (quantizer<Q>) {
            add(at, work);
        } else {
            add_exact(at, work);
        }
    }

private:
    /// Enqueues an update by whole weights, which arrive in the storage of the replica.
    void replace(std::byte* work) const {
        const auto all = sizes.cut[0];
        const std::size_t bytes = sizes.bytes(0, 0);
        if (replica.owns()) {
            codec::write(on.intra_node, replica.exact(), in.tensor(), all.in_own(replica.owner()),
                         replica.own_message(replica.message(), bytes));
        }
        start_after(on.inter_node, on.intra_node);
        spread(replica.message(), bytes);
        start_after(on.intra_node, on.inter_node);
        gather(0, work);
    }

    /// Enqueues an update by quantized differences.
    void add(const update_buffers& at, std::byte* work) const {
        const std::size_t slots = most_served(replica.owners());
        sizes.for_each(work, slots, [&](std::size_t c, std::byte* messages, std::size_t bytes) {
            if (!replica.owns()) return;
            const auto chunk = sizes.cut[c];
            codec::write(on.intra_node, in_phase(q, noise_phase::gather), difference{in.tensor(), replica.own(chunk)},
                         chunk.in_own(replica.owner()), replica.own_message(messages, bytes));
        });
        start_after(on.inter_node, on.intra_node);
        std::byte* gathering = work + at.gathered;
        sizes.for_each(work, slots, [&](std::size_t c, std::byte* messages, std::size_t bytes) {
            spread(messages, bytes);
            start_after(on.intra_node, on.inter_node);
            const auto chunk = sizes.cut[c];
            for_each_range([&](const slot_range& range) {
                codec::read(on.intra_node, message_sum{q, messages + place_in(range, bytes)},
                            replica.stored(chunk, range), replica.tensors(chunk), add_difference);
            });
            gathering = gather(c, gathering);
        });
    }

    /// Enqueues an update by exact differences. Blocks until this rank's differences are encoded, and the owners have
    /// exchanged the sizes of their messages. Messages that move together then have the size of the longest one.
    /// Allocates in device_space, for a copy of the sizes, which the host reads.
    void add_exact(const update_buffers& at, std::byte* work) const {
        const std::size_t chunks = sizes.cut.size(), of_slot = chunks * sizeof(std::uint64_t);
        auto* const own_lengths = reinterpret_cast<std::uint64_t*>(replica.own_message(work + at.lengths, of_slot));
        sizes.for_each(work + at.own, 1, [&](std::size_t c, std::byte* message, std::size_t) {
            if (!replica.owns()) return;
            const auto chunk = sizes.cut[c];
            codec::write_exact(on.intra_node, difference{in.tensor(), replica.own(chunk)},
                               chunk.in_own(replica.owner()), message, own_lengths + c);
        });
        start_after(on.inter_node, on.intra_node);
        spread(work + at.lengths, of_slot);
        wait_for(comm.world(), on.inter_node);
        const auto* lengths = reinterpret_cast<const std::uint64_t*>(work + at.lengths);
        std::vector<std::uint64_t> copied;
        if constexpr (!std::same_as<typename Execution::space, host_space>) {
            copied.resize(most_served(replica.owners()) * chunks);
            on.inter_node.copy_to_host(copied.data(), lengths, copied.size() * sizeof(std::uint64_t));
            on.inter_node.wait();
            lengths = copied.data();
        }
        const std::byte* own = work + at.own;
        std::byte* gathering = work + at.gathered;
        sizes.for_each(work, most_served(replica.owners()), [&](std::size_t c, std::byte* messages, std::size_t most) {
            const auto chunk = sizes.cut[c];
            for_each_range([&](const slot_range& range) {
                const std::size_t bytes = longest(lengths, range, c, most);
                // Each range of slots has room for messages of the most bytes.
                std::byte* const received = messages + place_in(range, most);
                // In a range after the first, of another column, this rank's slot is empty: its bytes mean nothing.
                std::byte* const sent = replica.own_message(received, bytes);
                if (replica.owns() && range.place == 0) {
                    codec::place_exact(on.inter_node, chunk.in_own(replica.owner()), own, sent, bytes);
                }
                spread(range, {sent, received, bytes});
                start_after(on.intra_node, on.inter_node);
                codec::read_exact(on.intra_node, received, bytes, replica.stored(chunk, range), replica.tensors(chunk));
            });
            own += most;
            gathering = gather(c, gathering);
        });
    }

    /// Number of bytes that the messages of `range` have in chunk c: the most of their sizes in `lengths`, rounded up.
    /// Throws precondition_error if one is larger than `most`, which a faulty rank alone can send.
    std::size_t longest(const std::uint64_t* lengths, const slot_range& range, std::size_t c, std::size_t most) const {
        std::size_t longest = 0;
        for (int s = 0; s != range.count; ++s) {
            if (replica.order().rank(range.first + s) >= replica.owners().size()) continue;
            const std::size_t bytes = lengths[static_cast<std::size_t>(range.place + s) * sizes.cut.size() + c];
            if (bytes > most) {
                throw precondition_error("quantized_update", "messages of at most " + std::to_string(most) + " bytes",
                                         "one of " + std::to_string(bytes));
            }
            longest = std::max(longest, round_up(bytes, 16));
        }
        return longest;
    }

    /// Calls f(range) for each range of slots that this rank serves.
    template <class F>
    void for_each_range(F f) const {
        const served_slots served = replica.served();
        for (int i = 0; i != served.size(); ++i) f(served[i]);
    }
    /// Offset of the first message of `range` among messages of `bytes` bytes, one for each slot that this rank serves.
    static std::size_t place_in(const slot_range& range, std::size_t bytes) {
        return static_cast<std::size_t>(range.place) * bytes;
    }

    /// Brings the owners' messages, of `bytes` bytes each, of all slots that this rank serves, to all groups. They
    /// arrive in `messages`, where this rank's own message is already, if it has one.
    void spread(std::byte* messages, std::size_t bytes) const {
        for_each_range([&](const slot_range& range) {
            spread(range, {replica.own_message(messages, bytes), messages + place_in(range, bytes), bytes});
        });
    }
    /// Brings the owners' messages of `range`, slots that this rank serves, to all groups.
    void spread(const slot_range& range, const message_buffers& of) const {
        const Execution& exec = on.inter_node;
        constexpr int last = Communicator::levels - 1;
        if (range.count == replica.groups()) {
            for (int l = last; l > 0; --l) comm.gather(l, exec, range, of);
            return;
        }
        auto& ranks = comm.peers(last, range);
        if constexpr (broadcasting_transport_on<std::remove_reference_t<decltype(ranks)>, Execution>) {
            ranks.broadcast(exec, of.sent, of.received, of.bytes, range.count);
        } else {
            throw precondition_error("secondary_replica", "a transport that can broadcast", "one that cannot");
        }
    }

    /// Gathers chunk c within the group, into whole tensors, if the call has any. Returns the end of the chunk's
    /// messages in `work`.
    std::byte* gather(std::size_t c, std::byte* work) const
        requires(!std::same_as<Out, none>)
    {
        static_assert(Shard::is_list == Out::is_list, "shard and full must both be arrays, or both tensor_lists");
        static_assert(codec_execution<Execution, typename Replica::quantizer_type, typename Out::element_type>,
                      "no codec for this execution: include its entry header");
        const auto chunk = sizes.cut.of(out.divided({replica.owners().size()}))[c];
        const std::byte* const messages = replica.gather(on.intra_node, comm, chunk, sizes.cut.size() == 1, work);
        codec::read(on.intra_node, one_message{replica.stored_as(), messages},
                    chunk.in_slots(replica.order(), 0, replica.slots()), out.tensor());
        return work + static_cast<std::size_t>(replica.slots()) * sizes.bytes(c, 1);
    }
    std::byte* gather(std::size_t, std::byte* work) const { return work; }
};

}  // namespace detail

/// Bytes of workspace that quantized_update needs: one message for each chunk and slot that a rank serves. `ranks` is
/// the topology or shard_owners of the replica, and `IntraNode` the quantizer of its gathers. `tensors` is an element
/// count, or a tensor_list of whole tensors.
template <topology Topology, difference_format Quantizer, quantizer IntraNode>
std::size_t quantized_update_workspace_bytes(const Topology& ranks, const Quantizer&, const IntraNode&,
                                             const tensors_shape& tensors, const gather_options& options = {}) {
    return tensors.divided({ranks.size()}, [&](const auto& whole) {
        return detail::update_workspace(ranks, whole, {format_of<Quantizer>, format_of<IntraNode>}, options.chunks,
                                        false);
    });
}

/// Bytes of workspace of a quantized_update that also gathers whole tensors: quantized_update_workspace_bytes(...) and
/// a message of `IntraNode` for each slot and chunk.
template <topology Topology, difference_format Quantizer, quantizer IntraNode>
std::size_t quantized_update_gather_workspace_bytes(const Topology& ranks, const Quantizer&, const IntraNode&,
                                                    const tensors_shape& tensors, const gather_options& options = {}) {
    return tensors.divided({ranks.size()}, [&](const auto& whole) {
        return detail::update_workspace(ranks, whole, {format_of<Quantizer>, format_of<IntraNode>}, options.chunks,
                                        true);
    });
}

/// Updates the replicas of all ranks to a version, `replica.to(version)`, by the quantized differences of the ranks'
/// shards to the replicas. A step changes weights little, so that few bits are enough for a difference. The error of
/// one difference is part of the next. After any number of updates, a replica is off by one difference's quantization
/// error at most, and by the rounding to the replica's element type. An empty replica gets whole weights, in that type.
///
/// `replica.to(version, full)` also gathers whole tensors, as secondary_partition_gather does: the weight all-gather of
/// a step with hpZ's memory. With a pipeline, one chunk is gathered within the group while others cross groups.
///
/// With exact_differences in place of a quantizer, replicas of bfloat16 or half get the bits of the shards, rounded to
/// their type. Sizes of messages then depend on the weights: ranks exchange them first, and messages that move together
/// have the size of the longest one. CUDA graphs cannot capture this. If a message arrives with other bytes than exact
/// differences, elements become NaN on a GPU; on the host, this is an integrity_error.
///
/// If only some groups own shards (replicas of shard_owners), ranks of other groups make the same calls with an empty
/// shard of the same type. That is an array of no elements, or a tensor_list without tensors. Their replicas become
/// equal to the owners' replicas.
///
/// Shapes    shard [partition(n, p).size(r)], for the replica's n, with p = owners().size() and r = owner(). Or a
///           tensor_list of this rank's shards of the replica's tensors. Of any element type: float for master weights
///           beside a replica in bfloat16. full [n], of any element type, or a tensor_list of whole tensors if shard is
///           a list. Scratch as quantized_update_workspace_bytes(...), or with full as
///           quantized_update_gather_workspace_bytes(...), aligned to 16 bytes
/// Result    replica == replica + decode(encode(shard - replica)), in float, rounded to its element type. full == the
///           replicas, each part through the replicas' quantizer `IntraNode`. The bits are equal in all groups, and do
///           not depend on execution, transport or chunks. A block with a difference that is not finite becomes NaN. An
///           element of the replica that is not finite counts as 0, so that the next finite weights replace it
/// Moves     each message between groups once, to the ranks of the same index: by an all_gather, or by a broadcast of
///           the owners if not all groups own shards. Nothing within the group; with full, to each other rank of the
///           group a message of `IntraNode` for each group and chunk
/// Order     enqueued on `exec`, or on both executions of a pipeline, where one chunk crosses while others are encoded
///           and added; complete when `intra_node` is (after a throw, when both are). host{} has finished on return.
///           Arrays, lists, replica, communicator and executions must outlive the work. Without scratch, allocates a
///           workspace and blocks until complete. With exact_differences, blocks until ranks know the sizes of
///           messages. If `exec` fails later, before or in this work, the storage does not match its version:
///           `invalidate` on all ranks
/// In place  shard must not overlap the replica's storage; shard may lie inside full
/// Requires  the same n or list, element types, quantizer, options, owners and version on all ranks; replicas that are
///           all empty or all at version - 1; all ranks with one execution or all with a pipeline; with a pipeline on
///           MPI, MPI_THREAD_MULTIPLE; if not all groups own shards, a transport that can broadcast
/// Throws    precondition_error before any message: sizes that do not fit, a shard on a rank that owns none, or a
///           replica that has missed an update; also a transport that cannot broadcast where it must; on every rank
///           alike if the fault is on all ranks or the transport is `checked`
/// Source    ZeRO++ (arXiv 2306.10209), hpZ, and SDP4Bit (arXiv 2410.15526), weight differences
template <execution_or_pipeline Exec, class Communicator, difference_format Quantizer, tensors_in<space_of<Exec>> Shard,
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
    static_assert(difference_codec<execution_type, Quantizer, T>,
                  "no codec for this execution: include its entry header");

    Replica& replica = to.replica;
    const auto in = detail::operand_of<space>(shard);
    const shard_owners& owners = replica.owners();
    const auto whole = replica.whole(in);
    const bool replaces = !replica.version();
    std::array formats{format_of<Quantizer>, format_of<IntraNode>};
    const std::size_t message = formats[0].bytes_of(whole);
    const int chunks = detail::chunks_for(options.chunks, comm.topology(), message, detail::overlaps_hops(on));
    const detail::schedule differences(whole, chunks, formats);
    const std::size_t bytes = detail::update_buffers(owners, differences, gathers).bytes;
    if (replaces) formats[0] = format_of<decltype(replica.exact())>;
    const detail::schedule sizes(whole, replaces ? 1 : chunks, formats);

    detail::prologue call("quantized_update", replica.elements(), element_traits<T>::name, comm.topology());
    call.quantize_with(q);
    if constexpr (gathers) call.quantize_with(replica.stored_as(), " then ");
    call.agree(agreed_text(replaces ? "whole, from " : "differences, from ")
                   .append(element_traits<detail::element_of_tensors<Shard, space>>::name)
                   .append(", version ")
                   .append(to.version));
    call.agree(replica.text());
    call.agree(whole.text());
    if (chunks > 1) call.agree(short_text("in ").append(chunks).append(" chunks"));
    call.require_chunks(options.chunks);
    call.require([&] { return detail::update_problem<execution_type>(comm, in, to); });
    if constexpr (std::same_as<Quantizer, exact_differences>) {
        if constexpr (requires { on.intra_node.is_captured(); }) {
            call.require([&]() -> std::string {
                if (!on.intra_node.is_captured()) return {};
                return "expected a stream that no CUDA graph captures, since the host reads sizes of messages, given a "
                       "captured one";
            });
        }
        call.require([&]() -> std::string {
            if (differences.largest(0) <= exact_differences::most_bytes) return {};
            return "expected chunks with messages of at most " + std::to_string(exact_differences::most_bytes) +
                   " bytes, given one of " + std::to_string(differences.largest(0));
        });
    }
    call.run(on, comm.world(), scratch, bytes, [&](std::byte* work) {
        // If the update throws from here on, the replica is between two versions, and has no version.
        replica.invalidate();
        if (replica.elements() != 0) {
            detail::update_call{on, comm, q, replica, sizes, in, to.full}.enqueue(replaces, work);
        }
    });
    // Behind `run`, which may have waited for the work, and thrown its error.
    replica.stamp(to.version);
}

}  // namespace zeropp
