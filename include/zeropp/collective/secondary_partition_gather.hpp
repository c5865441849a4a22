#pragma once
/// \file
/// hpZ: the backward weight gather of ZeRO-3, within the node.

#include <zeropp/codec/codec.hpp>
#include <zeropp/collective/options.hpp>
#include <zeropp/collective/pipeline.hpp>
#include <zeropp/collective/prologue.hpp>
#include <zeropp/collective/secondary_partition.hpp>
#include <zeropp/collective/secondary_replica.hpp>
#include <zeropp/core/view.hpp>
#include <zeropp/core/workspace.hpp>
#include <zeropp/execution/execution.hpp>
#include <zeropp/layout/divided.hpp>
#include <zeropp/layout/wire_layout.hpp>
#include <zeropp/transport/communicator.hpp>

#include <cstddef>
#include <cstdint>
#include <string>

namespace zeropp {

/// Bytes of workspace that secondary_partition_gather needs for `tensors`, an element count or a tensor_list of whole
/// tensors, in secondary_partitions: one message for each rank of the group.
template <quantizer Quantizer>
std::size_t secondary_partition_gather_workspace_bytes(int group_size, const Quantizer&, const tensors_shape& tensors) {
    return detail::over_group(group_size, tensors, [&](const auto& whole) {
        return static_cast<std::size_t>(group_size) * detail::wire_bytes_of<Quantizer>(whole);
    });
}

/// Bytes of workspace that secondary_partition_gather needs for `tensors` in secondary_replicas over `ranks`, a
/// topology or shard_owners, gathered as messages of `IntraNode`: one message for each slot of `ranks`.
template <topology Topology, quantizer IntraNode>
std::size_t secondary_partition_gather_workspace_bytes(const Topology& ranks, const IntraNode&,
                                                       const tensors_shape& tensors) {
    return detail::over_ranks(ranks, tensors, [&](const auto& whole) {
        return static_cast<std::size_t>(slot_count(ranks)) * detail::wire_bytes_of<IntraNode>(whole);
    });
}

namespace detail {
/// Gathers the messages that a group's ranks have stored of a chunk, and decodes them into the whole tensors. `all`:
/// the chunk is the only one.
template <execution Execution, class Communicator, class Secondary, class Slices, class Operand>
void gather_stored(const Execution& exec, Communicator& comm, const Secondary& secondary, const Slices& chunk, bool all,
                   const Operand& full, std::byte* work) {
    const column_rounds rounds = secondary.rounds();
    const std::size_t bytes = static_cast<std::size_t>(secondary.slots() / rounds.columns) *
                              wire_bytes_of<typename Secondary::quantizer_type>(chunk);
    // This rank's messages of a round, from its storage, or encoded into their place.
    const auto stored = [&](int round, std::byte* place) {
        return rounds.serves(round, comm.index()) ? secondary.messages(exec, full, chunk, all, round, place) : place;
    };
    const std::byte* messages = work;
    if (rounds.ranks > 1) {
        comm.gather_columns(exec, rounds, work, bytes, stored);
    } else {
        // A rank alone has all messages, one round's behind the other's.
        messages = stored(0, work);
        for (int j = 1; j != rounds.count(); ++j) stored(j, work + static_cast<std::size_t>(j) * bytes);
    }
    codec<Execution>::read(exec, one_message{secondary.stored_as(), messages},
                           chunk.in_slots(secondary.order(), 0, secondary.slots()), full.tensor());
}
}  // namespace detail

/// Gathers whole tensors from the secondary_partitions, or the secondary_replicas, of this rank's group. Not one byte
/// leaves the group, by default the node. Another group takes another `comm`, on a topology with groups of that size.
///
/// Shapes    full [n], n as the partition's, or a tensor_list as the partition is for; scratch as
///           secondary_partition_gather_workspace_bytes(...), aligned to 16 bytes. A replica's list is over its
///           shard_owners: all ranks, unless it was made with fewer
/// Result    full == the parts stored on the ranks of the group, each through its quantizer; the same bits on all of
///           them
/// Order     enqueued on `exec`; host{} has finished on return. Arrays, lists, `secondary` and communicator must
///           outlive the work. Without scratch, allocates a workspace and blocks until complete
/// Requires  the same n or list, element type, quantizer and version on all ranks of the group
/// Throws    precondition_error before any message: sizes that do not fit, or a partition that was not stored at
///           `version`; on every rank of the group alike if the fault is on all or the transport is `checked`
/// Source    ZeRO++ (arXiv 2306.10209), section 3.2, hpZ
template <execution Execution, class Communicator, detail::secondary_in<typename Execution::space> Secondary,
          mutable_tensors_in<typename Execution::space> Full, scratch_in<typename Execution::space> Scratch = none>
void secondary_partition_gather(const Execution& exec, Communicator& comm, const Secondary& secondary,
                                std::uint64_t version, Full&& full, Scratch&& scratch = {}) {
    using space = typename Execution::space;
    using Quantizer = typename Secondary::quantizer_type;
    using T = detail::element_of_tensors<Full, space>;
    static_assert(codec_execution<Execution, Quantizer, T>, "no codec for this execution: include its entry header");

    const auto out = detail::operand_of<space>(full);
    const Quantizer q = secondary.stored_as();
    const auto whole = secondary.division_of(out);
    const std::size_t bytes = static_cast<std::size_t>(secondary.slots()) * detail::wire_bytes_of<Quantizer>(whole);

    detail::prologue call("secondary_partition_gather", secondary.elements(), element_traits<T>::name, comm.topology());
    call.quantize_with(q);
    call.agree(agreed_text("version ").append(version));
    call.agree(secondary.text());
    call.agree(whole.text());
    call.require([&] { return secondary.place_problem(comm.topology(), comm.rank()); });
    call.require([&] { return secondary.tensors_problem(out); });
    call.require([&]() -> std::string {
        if (secondary.version() == version) return {};
        return "expected a secondary partition of version " + std::to_string(version) + ", given " +
               (secondary.version() ? "one of version " + std::to_string(*secondary.version()) : "an empty one");
    });
    // A rank that is its whole group has nobody to agree with, and comm.peers(0) would be ranks of other nodes.
    if (comm.group_size() == 1 && comm.topology().groups() != 1) call.exchange_nothing();
    call.run(pipeline(exec), comm.peers(0), scratch, bytes, [&](std::byte* work) {
        if (whole.elements() == 0) return;
        const auto all = typename decltype(whole)::chunks(whole, 1, Quantizer::block_size)[0];
        detail::gather_stored(exec, comm, secondary, all, true, out, work);
    });
}

}  // namespace zeropp
