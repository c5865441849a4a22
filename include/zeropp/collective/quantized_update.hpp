#pragma once
/// \file
/// Brings weights that every node keeps whole up to date: what moves is how they changed, and across nodes alone.

#include <zeropp/codec/codec.hpp>
#include <zeropp/collective/pipeline.hpp>
#include <zeropp/collective/scratch.hpp>
#include <zeropp/collective/secondary_replica.hpp>
#include <zeropp/core/element.hpp>
#include <zeropp/core/text.hpp>
#include <zeropp/core/view.hpp>
#include <zeropp/core/workspace.hpp>
#include <zeropp/execution/execution.hpp>
#include <zeropp/quantizer/wire_layout.hpp>
#include <zeropp/topology/partition.hpp>
#include <zeropp/topology/slices.hpp>
#include <zeropp/topology/topology.hpp>
#include <zeropp/transport/communicator.hpp>

#include <cstddef>
#include <cstdint>
#include <string>

namespace zeropp {

/// Bytes of workspace that quantized_update needs for a tensor of so many elements: one message for each group.
template <topology Topology, quantizer Quantizer>
std::size_t quantized_update_workspace_bytes(const Topology& ranks, const Quantizer& q, std::size_t elements) {
    return static_cast<std::size_t>(ranks.groups()) * wire_bytes(q, partition(elements, ranks.size()).slice_size());
}

/// Moves the replicas of all ranks on to `version`: to the ranks' shards, by the quantized difference, since a step
/// changes weights by little, so that few bits say it well. What is lost of one difference is part of the next, so that
/// a replica is never farther from the weights than one difference's quantization error and the rounding to its own
/// element type, however many updates are made. An empty replica gets whole weights, in its own element type.
///
/// Shapes    shard [partition(n, ranks).size(rank)], n as the replica's, of any element type: float for master weights
///           beside a replica in bfloat16; scratch as quantized_update_workspace_bytes(...), aligned to 16
/// Result    replica == replica + decode(encode(shard - replica)), in float, rounded to its element type; the same bits
///           in all groups. Blocks whose difference is not finite become NaN
/// Moves     each message across groups once, to the ranks of the same index; nothing inside: a whole tensor is what
///           secondary_partition_gather makes of it, as often as it is needed
/// Order     enqueued on `exec`; host{} has finished on return. Arrays and communicator must outlive the work. Without
///           scratch, allocates a workspace and blocks until the work is complete. If `exec` fails later, before or in
///           this work, what is stored is not what the stamp says: `invalidate` on all ranks
/// In place  shard must not overlap the replica's storage
/// Requires  the same n, element types, quantizer and version on all ranks, and replicas that are all empty or all at
///           version - 1
/// Throws    precondition_error before any message: sizes that do not fit, or a replica that has missed an update; on
///           every rank alike if what is wrong is wrong on every rank or the transport is `checked`
/// Source    ZeRO++ (arXiv 2306.10209), hpZ, and SDP4Bit (arXiv 2410.15526), weight differences
template <execution Execution, class Communicator, quantizer Quantizer, array_in<typename Execution::space> Shard,
          quantizer Exact, scratch_in<typename Execution::space> Scratch = allocate_scratch>
void quantized_update(const Execution& exec, Communicator& comm, const Quantizer& q, Shard&& shard,
                      secondary_replica<Exact, typename Execution::space>& replica, std::uint64_t version,
                      Scratch&& scratch = {}) {
    using space = typename Execution::space;
    using S = element_of<Shard, space>;
    using T = typename Exact::element_type;
    static_assert(codec_execution<Execution, Quantizer, T>, "no codec for this execution: include its entry header");

    const auto in = as_view<space>(shard);
    const auto& ranks = comm.topology();
    const partition part(replica.elements(), ranks.size());
    const bool whole = !replica.version();
    const std::size_t bytes = wire_bytes(q, part.slice_size());
    const std::size_t all_bytes = quantized_update_workspace_bytes(ranks, q, replica.elements());

    const auto place_text = [](int group, int index, const auto& of) {
        return "rank " + std::to_string(index) + " of group " + std::to_string(group) + " of " +
               std::to_string(of.groups()) + " groups of " + std::to_string(of.group_size());
    };
    const auto update = [&](const view<std::byte, space>& work) {
        if (replica.elements() == 0) return;
        const auto across = [&](std::byte* own, std::byte* messages, std::size_t size) {
            if (ranks.groups() > 1) comm.across().all_gather(exec, own, messages, size);
        };
        const slices mine = slices::single(in.size(), 0, part.slice_size(), part.offset(comm.rank()));
        if (whole) {
            std::byte* const own = replica.message(comm.group_id());
            codec<Execution>::encode(exec, replica.stored_as(), in.data(), mine, own);
            across(own, replica.message(0), replica.slot_bytes());
            return;
        }
        std::byte* const own = work.data() + static_cast<std::size_t>(comm.group_id()) * bytes;
        codec<Execution>::encode(exec, q, difference<S, T>{in.data(), replica.own()}, mine, own);
        across(own, work.data(), bytes);
        codec<Execution>::reduce_decode(exec, q, work.data(), 1, replica.stored(), replica.tensor(),
                                        finish{.divisor = 1.0f, .accumulate = true});
    };
    const auto run = [&](const view<std::byte, space>& work) {
        std::string problem = workspace_problem(work, all_bytes);
        if (replica.groups() != ranks.groups() || replica.group_size() != ranks.group_size() ||
            replica.group() != comm.group_id() || replica.index() != comm.index()) {
            problem = "expected a secondary replica for " + place_text(comm.group_id(), comm.index(), ranks) +
                      ", given one for " + place_text(replica.group(), replica.index(), replica);
        } else if (in.size() != part.size(comm.rank())) {
            problem = shard_problem(part, comm.rank(), in.size());
        } else if (detail::overlap(in, replica.storage())) {
            problem = "expected a shard apart from the replica, given one that overlaps it";
        } else if (!whole && *replica.version() + 1 != version) {
            problem = "expected a secondary replica of version " + std::to_string(version - 1) +
                      ", given one of version " + std::to_string(*replica.version());
        }
        const short_text agreed = short_text(whole ? "whole, from " : "differences, from ")
                                      .append(element_traits<S>::name)
                                      .append(", version ")
                                      .append(version);
        begin_collective(comm.world(),
                         {"quantized_update", replica.elements(), element_traits<T>::name, q.name(), agreed}, problem);
        // What is neither the old version nor the new one, if this throws, has none.
        replica.invalidate();
        update(work);
        replica.stamp(version);
    };

    detail::with_scratch(
        pipeline<Execution>{exec, exec}, comm.world(), scratch, [&] { return all_bytes; }, run);
}

}  // namespace zeropp
