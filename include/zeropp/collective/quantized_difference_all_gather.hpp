#pragma once
/// \file
/// The weight all-gather of ranks that keep the gathered weights: what moves is how they changed.

#include <zeropp/codec/codec.hpp>
#include <zeropp/collective/divided.hpp>
#include <zeropp/collective/gather_messages.hpp>
#include <zeropp/collective/pipeline.hpp>
#include <zeropp/collective/quantized_all_gather.hpp>
#include <zeropp/collective/scratch.hpp>
#include <zeropp/core/view.hpp>
#include <zeropp/core/workspace.hpp>
#include <zeropp/execution/execution.hpp>
#include <zeropp/quantizer/wire_layout.hpp>
#include <zeropp/topology/partition.hpp>
#include <zeropp/transport/communicator.hpp>

#include <cstddef>
#include <string>

namespace zeropp {

/// Brings `replica`, which every rank holds with the same bits, up to date with the ranks' shards, moving the quantized
/// difference: a step changes weights by little, so that few bits say it well. What is lost of one difference is part
/// of the next, so that a replica is never farther from the weights than one difference's quantization error and the
/// rounding to its own element type, however many steps are made.
///
/// Shapes    replica [n]; shard [partition(n, ranks).size(rank)], of any element type: float for master weights beside
///           a replica in bfloat16; scratch as quantized_all_gather_workspace_bytes(...), with one chunk or automatic,
///           aligned to 16
/// Result    replica[i] + decode(encode(shard - replica))[i], in float, rounded to the replica's element type; the same
///           bits on all ranks as long as the replicas had. Blocks whose difference is not finite become NaN. An
///           element of the replica that is not finite counts as 0: the next finite weights replace it
/// In place  shard must not overlap replica
/// Moves     as quantized_all_gather
/// Order     enqueued on `exec`; host{} has finished on return. Arrays and communicator must outlive the work. Without
///           scratch, allocates a workspace and blocks until the work is complete
/// Requires  the same n, element types and quantizer on all ranks, and replicas of the same bits: from a
///           quantized_all_gather, or the same file
/// Throws    precondition_error before any message; on every rank alike if what is wrong is wrong on every rank or the
///           transport is `checked`
/// Source    SDP4Bit (arXiv 2410.15526), weight differences
template <execution Execution, class Communicator, quantizer Quantizer, array_in<typename Execution::space> Shard,
          mutable_array_in<typename Execution::space> Replica,
          scratch_in<typename Execution::space> Scratch = allocate_scratch>
void quantized_difference_all_gather(const Execution& exec, Communicator& comm, const Quantizer& q, Shard&& shard,
                                     Replica&& replica, Scratch&& scratch = {}) {
    using space = typename Execution::space;
    using S = element_of<Shard, space>;
    using T = element_of<Replica, space>;
    static_assert(codec_execution<Execution, Quantizer, T>, "no codec for this execution: include its entry header");

    const auto in = as_view<space>(shard);
    const auto out = as_view<space>(replica);
    const auto& ranks = comm.topology();
    const detail::tensor_division whole(out.size(), ranks.size());
    const partition& part = whole.part();
    const std::size_t all_bytes = detail::gather_bytes<Quantizer>(whole, ranks, 1);

    const auto run = [&](const view<std::byte, space>& work) {
        std::string problem = workspace_problem(work, all_bytes);
        if (in.size() != part.size(comm.rank())) {
            problem = shard_problem(part, comm.rank(), in.size());
        } else if (detail::overlap(in, out)) {
            problem = "expected a shard apart from the replica, given one that overlaps it";
        }
        const short_text options = short_text("from ").append(element_traits<S>::name);
        begin_collective(comm.world(),
                         {"quantized_difference_all_gather", out.size(), element_traits<T>::name, q.name(), options},
                         problem);
        if (out.size() == 0) return;

        const std::size_t bytes = wire_bytes(q, part.slice_size());
        const std::size_t offset = part.offset(comm.rank());
        // A rank without elements has no address in the replica either.
        const T* const base = in.size() == 0 ? nullptr : out.data() + offset;
        codec<Execution>::encode(exec, q, difference{in.data(), base},
                                 slices::single(in.size(), 0, part.slice_size(), offset),
                                 detail::own_message(comm, work.data(), bytes));
        detail::gather_across(exec, comm, work.data(), bytes);
        detail::gather_inside(exec, comm, work.data(), bytes);
        codec<Execution>::reduce_decode(exec, q, work.data(), 1,
                                        slices{part, ranks.order(), 0, part.slice_size(), 0, ranks.size()}, out.data(),
                                        detail::add_difference);
    };
    detail::with_scratch(
        pipeline<Execution>{exec, exec}, comm.world(), scratch, [&] { return all_bytes; }, run);
}

}  // namespace zeropp
