#pragma once
/// \file
/// The hops of collectives: of an all-gather, and of a reduction with its chunks and buffers.

#include <zeropp/codec/codec.hpp>
#include <zeropp/collective/pipeline.hpp>
#include <zeropp/execution/execution.hpp>
#include <zeropp/layout/divided.hpp>
#include <zeropp/layout/hop_sizes.hpp>
#include <zeropp/topology/topology.hpp>
#include <zeropp/transport/communicator.hpp>

#include <algorithm>
#include <cstddef>

namespace zeropp::detail {

/// Address of this rank's message among all `messages`, in slot order.
template <class Communicator>
std::byte* own_message(const Communicator& comm, std::byte* messages, std::size_t bytes) {
    const auto groups = static_cast<std::size_t>(comm.topology().groups());
    const std::size_t slot =
        static_cast<std::size_t>(comm.index()) * groups + static_cast<std::size_t>(comm.group_id());
    return messages + slot * bytes;
}

/// Inter-node hop: gathers the messages of the ranks of this rank's index, which slot order puts side by side, as
/// `gather_inside` needs them.
template <execution Execution, class Communicator>
void gather_across(const Execution& exec, Communicator& comm, std::byte* messages, std::size_t bytes) {
    const int groups = comm.topology().groups();
    if (groups == 1) return;
    std::byte* const of_index = messages + static_cast<std::size_t>(comm.index() * groups) * bytes;
    comm.across().all_gather(exec, own_message(comm, messages, bytes), of_index, bytes);
}

/// Intra-node hop: gathers the messages that the node's ranks have after `gather_across`.
template <execution Execution, class Communicator>
void gather_inside(const Execution& exec, Communicator& comm, std::byte* messages, std::size_t bytes) {
    if (comm.topology().group_size() == 1) return;
    const std::size_t index_bytes = static_cast<std::size_t>(comm.topology().groups()) * bytes;
    const std::byte* const of_index = messages + static_cast<std::size_t>(comm.index()) * index_bytes;
    comm.group().all_gather(exec, of_index, messages, index_bytes);
}

/// Chunks of every shard, in whole blocks of both quantizers, and buffers of one reduction.
template <quantizer Inside, quantizer Across, class Division>
struct reduce_scatter_plan {
    typename Division::chunks cut;
    bool hop_inside;
    bool hop_across;
    reduce_buffers largest;

    /// Send and receive buffers of one chunk.
    struct chunk_buffers {
        std::byte* inside_send;
        std::byte* inside_receive;
        std::byte* across_send;
        std::byte* across_receive;
    };

    /// Chunks also end with whole blocks of `block` elements.
    template <topology Topology>
    reduce_scatter_plan(const Topology& ranks, const Division& whole, int chunks, int block = 1)
        // Block sizes are powers of two, so the largest is a multiple of the others.
        : cut(whole, chunks, static_cast<std::size_t>(std::max({Inside::block_size, Across::block_size, block}))),
          hop_inside(has_hop_inside(ranks)), hop_across(has_hop_across(ranks)),
          largest(ranks, largest_message<Inside>(whole, cut), largest_message<Across>(whole, cut)) {}

    std::size_t workspace_bytes() const { return largest.workspace(cut.size()); }

    chunk_buffers buffers(std::byte* workspace, std::size_t c) const {
        std::byte* const first = workspace + c % 2 * largest.bytes();
        std::byte* const across = first + 2 * largest.inside;
        return {first, first + largest.inside, across, across + largest.across};
    }

private:
    template <quantizer Q>
    static std::size_t largest_message(const Division& whole, const typename Division::chunks& cut) {
        std::size_t bytes = 0;
        for (std::size_t c = 0; c != cut.size(); ++c) bytes = std::max(bytes, chunk_wire_bytes<Q>(cut[c]));
        return whole.elements() != 0 ? bytes : 0;
    }
};

/// Enqueues the hops of one chunk of a reduction, all but the last sum: last(exec, quantizer, messages, contributors)
/// enqueues that.
template <execution Execution, class Communicator, quantizer Inside, quantizer Across, class Plan, class Tensor,
          class Slices, class Memory, class Last>
void reduce_chunk(const pipeline<Execution>& exec, Communicator& comm, const Inside& inside, const Across& across,
                  const Plan& plan, const typename Plan::chunk_buffers& buffers, Tensor full, const Slices& chunk,
                  const Memory& memory, Last last) {
    using codec = zeropp::codec<Execution>;
    const auto& ranks = comm.topology();
    const int groups = ranks.groups();
    const auto to_all = chunk.in_slots(ranks.order(), 0, ranks.size());
    if (plan.hop_inside) {
        codec::write(exec.inside, inside, full, to_all, buffers.inside_send, memory.inside());
        const std::size_t bytes = static_cast<std::size_t>(groups) * chunk_wire_bytes<Inside>(chunk);
        comm.group().all_to_all(exec.inside, buffers.inside_send, buffers.inside_receive, bytes);
        if (!plan.hop_across) {
            last(exec.inside, inside, buffers.inside_receive, ranks.group_size());
            return;
        }
        const auto to_counterparts = chunk.in_slots(ranks.order(), comm.index() * groups, groups);
        codec::write(exec.inside, across, message_sum{inside, buffers.inside_receive, ranks.group_size()},
                     to_counterparts, buffers.across_send, memory.across());
    } else {
        codec::write(exec.inside, across, full, to_all, buffers.across_send, memory.across());
    }
    exec.across.wait(exec.inside.record());
    comm.across().all_to_all(exec.across, buffers.across_send, buffers.across_receive, chunk_wire_bytes<Across>(chunk));
    last(exec.across, across, buffers.across_receive, groups);
}

}  // namespace zeropp::detail
