#pragma once
/// \file
/// hpZ: the backward weight gather of ZeRO-3, served inside the node.

#include <zeropp/codec/codec.hpp>
#include <zeropp/collective/run_to_completion.hpp>
#include <zeropp/collective/secondary_partition.hpp>
#include <zeropp/core/view.hpp>
#include <zeropp/core/workspace.hpp>
#include <zeropp/execution/execution.hpp>
#include <zeropp/quantizer/wire_layout.hpp>
#include <zeropp/transport/communicator.hpp>

#include <cstddef>
#include <cstdint>
#include <string>

namespace zeropp {

/// Bytes of workspace that secondary_partition_gather needs: one message for each rank of the group.
template <quantizer Quantizer>
std::size_t secondary_partition_gather_workspace_bytes(int group_size, const Quantizer& q, std::size_t elements) {
    return static_cast<std::size_t>(group_size) * wire_bytes(q, partition(elements, group_size).slice_size());
}

/// Gathers a tensor from the secondary partitions of this rank's group. Not one byte leaves the group, which by default
/// is the node; another secondary group is another `comm`, made on a topology with groups of that size.
///
/// Shapes    full [n], n as the partition's; scratch as secondary_partition_gather_workspace_bytes(...), aligned to 16
/// Result    full == what was stored on the ranks of the group, each part through its quantizer; the same bits on all
///           ranks of the group
/// Order     enqueued on `exec`; host{} has finished on return. Arrays and communicator must outlive the work
/// Requires  the same n, element type, quantizer and version on all ranks of the group
/// Throws    precondition_error before any message: sizes that do not fit, or a partition that was not stored at
///           `version`; on every rank of the group alike if what is wrong is wrong on all or the transport is `checked`
/// Source    ZeRO++ (arXiv 2306.10209), section 3.2, hpZ
template <execution Execution, class Communicator, quantizer Quantizer,
          mutable_array_in<typename Execution::space> Full, mutable_array_in<typename Execution::space> Scratch>
void secondary_partition_gather(const Execution& exec, Communicator& comm,
                                const secondary_partition<Quantizer, typename Execution::space>& secondary,
                                std::uint64_t version, Full&& full, Scratch&& scratch) {
    using space = typename Execution::space;
    using T = element_of<Full, space>;
    static_assert(codec_execution<Execution, Quantizer, T>, "no codec for this execution: include its entry header");

    const auto out = as_view<space>(full);
    const view<std::byte, space> work = as_view<space>(scratch);
    const Quantizer& q = secondary.stored_as();
    const partition& part = secondary.part();
    const int group_size = comm.topology().group_size();

    std::string problem =
        workspace_problem(work, secondary_partition_gather_workspace_bytes(group_size, q, part.count()));
    if (part.ranks() != group_size || secondary.index() != comm.index()) {
        problem = "expected a secondary partition for rank " + std::to_string(comm.index()) + " of a group of " +
                  std::to_string(group_size) + ", given one for rank " + std::to_string(secondary.index()) + " of " +
                  std::to_string(part.ranks());
    } else if (out.size() != part.count()) {
        problem = "expected a tensor of " + std::to_string(part.count()) + " elements, given one of " +
                  std::to_string(out.size());
    } else if (secondary.version() != version) {
        problem = "expected a secondary partition of version " + std::to_string(version) + ", given " +
                  (secondary.version() ? "one of version " + std::to_string(*secondary.version())
                                       : std::string("an empty one"));
    }
    const short_text options = short_text("version ").append(std::to_string(version));
    const collective_call call{"secondary_partition_gather", part.count(), element_traits<T>::name, q.name(), options};
    // Where the group is this rank alone, there is nobody to agree with, and comm.group() would be ranks of other nodes.
    if (group_size > 1 || comm.topology().groups() == 1) {
        begin_collective(comm.group(), call, problem);
    } else if (!problem.empty()) {
        throw precondition_error(call.primitive.str() + ": " + problem);
    }
    if (out.size() == 0) return;

    const std::byte* messages = secondary.message();
    if (group_size > 1) {
        comm.group().all_gather(exec, messages, work.data(), wire_bytes(q, part.slice_size()));
        messages = work.data();
    }
    codec<Execution>::decode(exec, q, messages, {part, slice_order{}, 0, part.slice_size(), 0, group_size}, out.data());
}

/// The same with a workspace of its own, for first use: allocates, and blocks until the work is complete.
template <execution Execution, class Communicator, quantizer Quantizer,
          mutable_array_in<typename Execution::space> Full>
void secondary_partition_gather(const Execution& exec, Communicator& comm,
                                const secondary_partition<Quantizer, typename Execution::space>& secondary,
                                std::uint64_t version, Full&& full) {
    workspace<typename Execution::space> scratch(secondary_partition_gather_workspace_bytes(
        comm.topology().group_size(), secondary.stored_as(), secondary.part().count()));
    detail::run_to_completion(
        exec, comm.group(), [&] { secondary_partition_gather(exec, comm, secondary, version, full, scratch.view()); });
}

}  // namespace zeropp
