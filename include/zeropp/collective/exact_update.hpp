#pragma once
/// \file
/// Brings weights that every node keeps whole up to date, to the bit: what moves are the elements that have changed.

#include <zeropp/codec/codec.hpp>
#include <zeropp/collective/divided.hpp>
#include <zeropp/collective/pipeline.hpp>
#include <zeropp/collective/quantized_update.hpp>
#include <zeropp/collective/scratch.hpp>
#include <zeropp/collective/secondary_replica.hpp>
#include <zeropp/core/changes.hpp>
#include <zeropp/core/element.hpp>
#include <zeropp/core/math.hpp>
#include <zeropp/core/text.hpp>
#include <zeropp/core/view.hpp>
#include <zeropp/core/workspace.hpp>
#include <zeropp/execution/execution.hpp>
#include <zeropp/topology/slice_owners.hpp>
#include <zeropp/topology/topology.hpp>
#include <zeropp/transport/communicator.hpp>

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>

namespace zeropp {

namespace detail {
/// A message for each of so many groups, the codec's numbers for each, and how many changes each has.
inline std::size_t exact_update_bytes(int groups, std::size_t message, const changes_runs& runs) {
    const auto messages = static_cast<std::size_t>(groups);
    return messages * message + round_up(messages * (runs.numbers() + 1) * sizeof(std::uint64_t), workspace_alignment);
}

/// All slices as one message for each group carries them. Requires elements.
template <class Division>
auto only_chunk(const Division& whole) {
    return typename Division::chunks(whole, 1, 1)[0];
}

/// How the codec goes through such a message.
template <class Division>
changes_runs runs_of(const Division& whole) {
    return changes_runs(whole.elements() == 0 ? 0 : change_groups(only_chunk(whole)));
}

/// The largest of n numbers, which work enqueued so far makes. Blocks until it is known.
template <execution Execution, class Transport>
std::uint64_t largest_of(const Execution& exec, Transport& transport, const std::uint64_t* numbers, std::size_t n) {
    std::uint64_t largest = 0;
    std::array<std::uint64_t, 64> some{};  // so many at a time, without an allocation
    for (std::size_t first = 0; first < n; first += some.size()) {
        const std::size_t count = std::min(some.size(), n - first);
        run_to_completion(pipeline<Execution>{exec, exec}, transport,
                          [&] { exec.copy_to_host(some.data(), numbers + first, count * sizeof *numbers); });
        largest = std::max(largest, *std::max_element(some.data(), some.data() + count));
    }
    return largest;
}
}  // namespace detail

/// Bytes of workspace that exact_update needs for a tensor of so many elements, or for a tensor_list of whole tensors,
/// in replicas of `Exact` that are made with `ranks`, a topology or slice_owners: what whole weights would take, and
/// numbers to agree on a size and to place changes by.
template <topology Topology, quantizer Exact>
std::size_t exact_update_workspace_bytes(const Topology& ranks, const Exact&, const tensors_shape& tensors) {
    return detail::over_ranks(ranks, tensors, [&](const auto& whole) {
        return detail::exact_update_bytes(ranks.groups(), detail::whole_wire_bytes<Exact>(whole),
                                          detail::runs_of(whole));
    });
}

/// Moves the replicas of all ranks on to `version`: to the bits of the ranks' shards. Those of a shard that differ from
/// the replica's travel, with their places; whole shards where that would not be less, or the replica is empty. Pays
/// where a step changes few of the weights as they are rounded, as fine-tuning at small rates does in 16 bits. Where
/// some groups alone own slices, ranks of the others have empty shards, as for quantized_update.
///
/// Shapes    shard [partition(n, ranks).size(rank)], n as the replica's, ranks its owners(), rank its owner(), of the
///           replica's element type; or a tensor_list of this rank's slices of the tensors that the replica is for;
///           scratch as exact_update_workspace_bytes(...), aligned to 16
/// Result    replica == shard, to the bit, of every rank that owns slices, and in all groups
/// Moves     across groups alone, to the ranks of the same index: 8 bytes to agree on a size, then a message of it,
///           from ranks that own slices. That is sizeof(T) + 1 bytes for each of the most changed elements that any of
///           these ranks has, and 2 for every 256 elements, or, if less, all elements; nothing more where no element
///           has changed
/// Order     blocks until the size is agreed; the rest is enqueued on `exec`; host{} has finished on return. Arrays,
///           lists, replica and communicator must outlive the work. Without scratch, allocates a workspace and blocks
///           until the work is complete. If `exec` fails later, what is stored is not what the stamp says: `invalidate`
///           on all ranks
/// In place  shard must not overlap the replica's storage
/// Requires  an execution with copy_to_host(to, from, bytes): all of the library's; the same n or list, element type,
///           owners and version on all ranks, and replicas that are all empty or all at version - 1; where not all
///           groups own slices, a transport that can broadcast
/// Throws    precondition_error before any message: sizes that do not fit, or a replica that has missed an update; on
///           every rank alike if what is wrong is wrong on every rank or the transport is `checked`
template <execution Execution, class Communicator, tensors_in<typename Execution::space> Shard, quantizer Exact,
          quantizer Inside, scratch_in<typename Execution::space> Scratch = allocate_scratch>
void exact_update(const Execution& exec, Communicator& comm, Shard&& shard,
                  secondary_replica<Exact, typename Execution::space, Inside>& replica, std::uint64_t version,
                  Scratch&& scratch = {}) {
    using space = typename Execution::space;
    using T = typename Exact::element_type;
    static_assert(std::same_as<T, detail::element_of_tensors<Shard, space>>,
                  "shard and replica must have the same element type");
    static_assert(codec_execution<Execution, Exact, T> && changes_execution<Execution, T>,
                  "no codec that knows changes (count_changes, encode_changes, decode_changes) for this execution: "
                  "include its entry header");
    static_assert(
        requires(const Execution& e, void* to) { e.copy_to_host(to, to, sizeof(std::uint64_t)); },
        "exact_update needs an execution with copy_to_host(to, from, bytes)");

    const auto in = detail::operand_of<space>(shard);
    const slice_owners& owners = replica.owners();
    const auto whole = replica.whole(in);
    const auto groups = static_cast<std::size_t>(owners.groups());
    const changes_runs runs = detail::runs_of(whole);
    const std::size_t all_bytes = detail::exact_update_bytes(owners.groups(), replica.slot_bytes(), runs);

    const auto run = [&](const view<std::byte, space>& work) {
        std::string problem = detail::replica_problem(replica, comm);
        if (problem.empty()) problem = detail::spread_problem<Execution>(replica, comm);
        if (problem.empty()) problem = replica.shard_problem(in);
        if (problem.empty()) problem = workspace_problem(work, all_bytes);
        if (problem.empty()) problem = detail::version_problem(replica, version);
        agreed_text agreed = agreed_text(replica.version() ? "changes, version " : "whole, version ").append(version);
        detail::add_agreed(agreed, replica.text());
        detail::add_agreed(agreed, whole.text());
        begin_collective(comm.world(),
                         {"exact_update", replica.elements(), element_traits<T>::name, replica.exact().name(), agreed},
                         problem);
        const bool replaces = !replica.version();
        // What is neither the old version nor the new one, if this throws, has none.
        replica.invalidate();
        if (replica.elements() != 0) {
            const auto all = detail::only_chunk(whole);
            const auto mine = all.in_own(replica.owns() ? replica.owner() : 0);
            const auto across = [&](std::byte* messages, std::size_t bytes) {
                detail::spread(exec, comm, replica, replica.own_message(messages, bytes), messages, bytes);
            };
            const difference changed{in.tensor(), replica.own(in)};
            auto* const numbers = reinterpret_cast<std::uint64_t*>(work.data() + groups * replica.slot_bytes());
            std::uint64_t* const of_groups = replica.groups() > 1 ? numbers + groups * runs.numbers() : numbers;
            if (!replaces) {
                if (replica.owns()) codec<Execution>::count_changes(exec, changed, mine, numbers);
                detail::spread(exec, comm, replica, reinterpret_cast<const std::byte*>(numbers),
                               reinterpret_cast<std::byte*>(of_groups), sizeof *numbers);
            }
            const std::uint64_t most = replaces ? 0 : detail::largest_of(exec, comm.world(), of_groups, groups);
            // Whatever number arrives, a layout is made of what fits.
            const std::size_t fitting = replica.slot_bytes() / (sizeof(T) + 1);
            const changes_layout layout(change_groups(all), std::min(static_cast<std::size_t>(most), fitting),
                                        sizeof(T));
            if (replaces || most > fitting || (most != 0 && layout.bytes >= replica.slot_bytes())) {
                if (replica.owns()) {
                    codec<Execution>::encode(exec, replica.exact(), in.tensor(), mine, replica.slot(comm.group_id()));
                }
                across(replica.slot(0), replica.slot_bytes());
            } else if (most != 0) {
                if (replica.owns()) {
                    codec<Execution>::encode_changes(exec, changed, mine, layout, numbers,
                                                     replica.own_message(work.data(), layout.bytes));
                }
                across(work.data(), layout.bytes);
                codec<Execution>::decode_changes(exec, work.data(), layout, replica.stored(all), replica.tensors(in),
                                                 numbers);
            }
        }
        replica.stamp(version);
    };
    detail::with_scratch(
        pipeline<Execution>{exec, exec}, comm.world(), scratch, [&] { return all_bytes; }, run);
}

}  // namespace zeropp
