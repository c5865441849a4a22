#pragma once
/// \file
/// The hops of an all-gather. Each rank's message of `bytes` bytes reaches all ranks, in slot order: it crosses nodes
/// once, to the ranks of the same index, and is then gathered within each node.

#include <zeropp/execution/execution.hpp>
#include <zeropp/transport/communicator.hpp>

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

}  // namespace zeropp::detail
