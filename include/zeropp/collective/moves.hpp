#pragma once
/// \file
/// The hops of collectives: of an all-gather, and of a reduction with its chunks and buffers.

#include <zeropp/codec/codec.hpp>
#include <zeropp/collective/pipeline.hpp>
#include <zeropp/core/config.hpp>
#include <zeropp/core/element.hpp>
#include <zeropp/core/view.hpp>
#include <zeropp/core/workspace.hpp>
#include <zeropp/execution/execution.hpp>
#include <zeropp/layout/chunking.hpp>
#include <zeropp/layout/divided.hpp>
#include <zeropp/layout/wire_layout.hpp>
#include <zeropp/quantizer/quantizer.hpp>
#include <zeropp/topology/columns.hpp>
#include <zeropp/topology/topology.hpp>
#include <zeropp/transport/communicator.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <type_traits>

namespace zeropp::detail {

/// to[i] <- from[i], converted through float if types differ.
template <class From, class To>
struct convert {
    const From* from;
    To* to;

    ZEROPP_HOST_DEVICE void operator()(std::size_t i) const {
        if constexpr (std::is_same_v<From, To>) {
            to[i] = from[i];
        } else {
            to[i] = element_traits<To>::from_float(element_traits<From>::to_float(from[i]));
        }
    }
};

/// Address of this rank's message among all `messages`, in slot order.
template <class Communicator>
std::byte* own_message(const Communicator& comm, std::byte* messages, std::size_t bytes) {
    const auto groups = static_cast<std::size_t>(comm.topology().groups());
    const std::size_t slot =
        static_cast<std::size_t>(comm.index()) * groups + static_cast<std::size_t>(comm.group_id());
    return messages + slot * bytes;
}

/// Address of the only tensor, without gaps; nullptr for other lists.
template <class T, class Space>
T* only_tensor(const array_operand<T, Space>& tensors) {
    return tensors.array.data();
}
template <class T, class Space>
T* only_tensor(const list_operand<T, Space>& tensors) {
    return tensors.list.size() == 1 && !tensors.has_gaps() ? tensors.list[0].data() : nullptr;
}

/// Memory of `tensors` if it holds the messages of all slots, each as large as `chunk`; otherwise nullptr. It does if Q
/// stores elements, one chunk holds all of the only tensor, shards are equal and of whole 16 bytes, and slots are
/// ranks. Each rank decides alone, because encoded messages have equal bytes.
template <quantizer Q, class Operand, class Slices, topology Topology>
auto messages_in_place([[maybe_unused]] const Operand& tensors, [[maybe_unused]] const Slices& chunk,
                       [[maybe_unused]] const Topology& ranks) {
    using T = std::remove_pointer_t<decltype(only_tensor(tensors))>;
    using byte = std::conditional_t<std::is_const_v<T>, const std::byte, std::byte>;
    byte* messages = nullptr;
    if constexpr (stores_elements<Q, std::remove_const_t<T>>) {
        T* const first = only_tensor(tensors);
        const std::size_t shard = chunk.last_count();
        const bool slots_are_ranks = ranks.groups() == 1 || largest_group_size(ranks) == 1;
        const bool equal_shards = static_cast<std::size_t>(ranks.size()) * shard == tensors.elements();
        const bool aligned = address_of(first) % 16 == 0 && wire_bytes_of<Q>(chunk) == shard * sizeof(T);
        if (slots_are_ranks && equal_shards && aligned) messages = reinterpret_cast<byte*>(first);
    }
    return messages;
}

/// Inter-node hop: gathers the messages of this rank's columns, each of which slot order puts side by side, as
/// `gather_intra_node` needs them. A rank sends its own message in all of them, so that slots without a rank hold
/// bytes.
template <execution Execution, class Communicator>
void gather_inter_node(const Execution& exec, Communicator& comm, std::byte* messages, std::size_t bytes) {
    const int groups = comm.topology().groups();
    if (groups == 1) return;
    const column_rounds rounds = comm.rounds();
    for (int j = 0; j != rounds.count(); ++j) {
        if (!rounds.serves(j, comm.index())) continue;
        std::byte* const of_column =
            messages + static_cast<std::size_t>(rounds.column(j, comm.index()) * groups) * bytes;
        comm.inter_node(j).all_gather(exec, own_message(comm, messages, bytes), of_column, bytes);
    }
}

/// Intra-node hop: gathers the messages that the node's ranks have after `gather_inter_node`.
template <execution Execution, class Communicator>
void gather_intra_node(const Execution& exec, Communicator& comm, std::byte* messages, std::size_t bytes) {
    const column_rounds rounds = comm.rounds();
    if (rounds.ranks == 1) return;
    const std::size_t column_bytes = static_cast<std::size_t>(comm.topology().groups()) * bytes;
    for (int j = 0; j != rounds.count(); ++j) {
        const auto at = [&](int column) { return messages + static_cast<std::size_t>(column) * column_bytes; };
        comm.intra_node().all_gather(exec, at(rounds.column(j, comm.index())), at(rounds.first(j)), column_bytes);
    }
}

/// Chunks of every shard, in whole blocks of all quantizers, and buffers of one reduction.
template <class Hops, class Division>
struct reduce_scatter_plan {
    typename Division::chunks cut;
    bool intra_node_hop;
    bool inter_node_hop;
    reduce_buffers largest;

    /// Send and receive buffers of one chunk.
    struct chunk_buffers {
        std::byte* intra_node_send;
        std::byte* intra_node_receive;
        std::byte* inter_node_send;
        std::byte* inter_node_receive;
    };

    template <topology Topology>
    reduce_scatter_plan(const Topology& ranks, const Division& whole, int chunks)
        : cut(whole, chunks, static_cast<std::size_t>(Hops::largest_block)), intra_node_hop(has_intra_node_hop(ranks)),
          inter_node_hop(has_inter_node_hop(ranks)),
          largest(ranks, largest_message<typename Hops::intra_node_type>(whole, cut),
                  largest_message<typename Hops::inter_node_type>(whole, cut)) {}

    std::size_t workspace_bytes() const { return largest.workspace(cut.size()); }

    chunk_buffers buffers(std::byte* workspace, std::size_t c) const {
        std::byte* const first = workspace + c % 2 * largest.bytes();
        std::byte* const inter_node = first + 2 * largest.intra_node;
        return {first, first + largest.intra_node, inter_node, inter_node + largest.inter_node};
    }

private:
    template <quantizer Q>
    static std::size_t largest_message(const Division& whole, const typename Division::chunks& cut) {
        std::size_t bytes = 0;
        for (std::size_t c = 0; c != cut.size(); ++c) bytes = std::max(bytes, wire_bytes_of<Q>(cut[c]));
        return whole.elements() != 0 ? bytes : 0;
    }
};

/// Enqueues the hops of one chunk of a reduction, all but the last sum: last(exec, quantizer, messages, contributors)
/// enqueues that. Rounds run from the last to the first, which has this rank's own column: its messages stay in the
/// receive buffer. All ranks take columns in one order, so that none waits for another in a circle.
template <execution Execution, class Communicator, class Hops, class Plan, class Full, class Slices, class Memory,
          class Last>
void reduce_chunk(const pipeline<Execution>& exec, Communicator& comm, const Hops& by_hop, const Plan& plan,
                  const typename Plan::chunk_buffers& buffers, const Full& full, const Slices& chunk,
                  const Memory& memory, Last last) {
    using codec = zeropp::codec<Execution>;
    const auto& ranks = comm.topology();
    const int groups = ranks.groups();
    // The messages of `full`, encoded into `buffer` unless its memory is them already.
    const auto messages_of_full = [&]<class Q, class Residuals>(const Q& q, std::byte* buffer,
                                                                const Residuals& residuals) -> const std::byte* {
        if constexpr (std::same_as<Residuals, none>) {
            if (const std::byte* const in_place = messages_in_place<Q>(full, chunk, ranks)) return in_place;
        }
        codec::write(exec.intra_node, q, full.tensor(), chunk.in_slots(ranks.order(), 0, slot_count(ranks)), buffer,
                     residuals);
        return buffer;
    };
    const auto exchange = [&](int round, const std::byte* sent) {
        exec.inter_node.wait(exec.intra_node.record());
        comm.inter_node(round).all_to_all(exec.inter_node, sent, buffers.inter_node_receive,
                                          wire_bytes_of<typename Hops::inter_node_type>(chunk));
    };
    if (!plan.intra_node_hop) {
        exchange(0, messages_of_full(by_hop.inter_node, buffers.inter_node_send, memory.inter_node(0)));
        return last(exec.inter_node, by_hop.inter_node, buffers.inter_node_receive, groups);
    }
    const column_rounds rounds = comm.rounds();
    const auto bytes_of_column = [&]<class Q>(const Q&) {
        return static_cast<std::size_t>(groups) * wire_bytes_of<Q>(chunk);
    };
    const std::size_t intra_node_bytes = bytes_of_column(by_hop.intra_node);
    const std::byte* const sent = messages_of_full(by_hop.intra_node, buffers.intra_node_send, memory.intra_node());
    for (int j = rounds.count() - 1; j >= 0; --j) {
        comm.intra_node().all_to_all(exec.intra_node,
                                     sent + static_cast<std::size_t>(rounds.first(j)) * intra_node_bytes,
                                     buffers.intra_node_receive, intra_node_bytes);
        if (!plan.inter_node_hop) {
            return last(exec.intra_node, by_hop.intra_node, buffers.intra_node_receive, rounds.ranks);
        }
        if (!rounds.serves(j, comm.index())) continue;
        std::byte* const sums =
            buffers.inter_node_send + static_cast<std::size_t>(j) * bytes_of_column(by_hop.inter_node);
        codec::write(exec.intra_node, by_hop.inter_node,
                     message_sum{by_hop.intra_node, buffers.intra_node_receive, rounds.ranks},
                     chunk.in_slots(ranks.order(), rounds.column(j, comm.index()) * groups, groups), sums,
                     memory.inter_node(j));
        exchange(j, sums);
    }
    last(exec.inter_node, by_hop.inter_node, buffers.inter_node_receive, groups);
}

}  // namespace zeropp::detail
