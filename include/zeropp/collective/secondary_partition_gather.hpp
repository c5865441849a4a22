#pragma once
/// \file
/// hpZ: the backward weight gather of ZeRO-3, within the node.

#include <zeropp/codec/codec.hpp>
#include <zeropp/collective/kept_messages.hpp>
#include <zeropp/collective/pipeline.hpp>
#include <zeropp/collective/prologue.hpp>
#include <zeropp/collective/secondary_partition.hpp>
#include <zeropp/collective/secondary_replica.hpp>
#include <zeropp/execution/execution.hpp>
#include <zeropp/layout/operands.hpp>
#include <zeropp/layout/wire_format.hpp>
#include <zeropp/transport/communicator.hpp>

#include <cstddef>
#include <cstdint>
#include <string>

namespace zeropp {

/// Bytes of workspace that secondary_partition_gather needs for secondary_partitions: one message for each rank of the
/// group. `tensors` is an element count, or a tensor_list of whole tensors.
template <quantizer Quantizer>
std::size_t secondary_partition_gather_workspace_bytes(int group_size, const Quantizer&, const tensors_shape& tensors) {
    return static_cast<std::size_t>(group_size) *
           tensors.divided({group_size, true}, [](const auto& whole) { return format_of<Quantizer>.bytes_of(whole); });
}

/// Bytes of workspace that secondary_partition_gather needs for secondary_replicas over `ranks`, a topology or
/// shard_owners: one message of `IntraNode` for each slot of `ranks`.
template <topology Topology, quantizer IntraNode>
std::size_t secondary_partition_gather_workspace_bytes(const Topology& ranks, const IntraNode&,
                                                       const tensors_shape& tensors) {
    return tensors.divided({ranks.size()}, [&](const auto& whole) {
        return static_cast<std::size_t>(slot_count(ranks)) * format_of<IntraNode>.bytes_of(whole);
    });
}

/// Gathers whole tensors from the secondary_partitions, or the secondary_replicas, of this rank's group. Not one byte
/// leaves the group. A group is a node, or other ranks if the topology of `comm` has other groups.
///
/// Shapes    full [n], for the partition's n, or a tensor_list of the partition's tensors; scratch as
///           secondary_partition_gather_workspace_bytes(...), aligned to 16 bytes. A list for a replica is over the
///           replica's shard_owners: all ranks, unless the replica was made with fewer
/// Result    full == the parts stored on the ranks of the group, each through the quantizer that `secondary` gathers
///           with; the same bits on all ranks of the group
/// Order     enqueued on `exec`; host{} has finished on return. Arrays, lists, `secondary` and communicator must
///           outlive the work. Without scratch, allocates a workspace and blocks until complete
/// Requires  the same n or list, element type, quantizer and version on all ranks of the group
/// Throws    precondition_error before any message: sizes that do not fit, or a partition that was not stored at
///           `version`; on every rank of the group alike if the fault is on all of them or the transport is `checked`
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
    const auto whole = out.divided(secondary.over());
    const std::size_t bytes = static_cast<std::size_t>(secondary.slots()) * format_of<Quantizer>.bytes_of(whole);

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
    // A rank that is alone in its group has nobody to agree with, and comm.peers(0) may then be all ranks.
    if (comm.group_size() == 1 && comm.topology().groups() != 1) call.exchange_nothing();
    call.run(pipeline(exec), comm.peers(0), scratch, bytes, [&](std::byte* work) {
        if (whole.elements() == 0) return;
        const auto all = typename decltype(whole)::chunks(whole, 1, Quantizer::block_size)[0];
        const std::byte* const messages = secondary.gather(exec, comm, all, true, work);
        codec<Execution>::read(exec, one_message{q, messages}, all.in_slots(secondary.order(), 0, secondary.slots()),
                               out.tensor());
    });
}

}  // namespace zeropp
