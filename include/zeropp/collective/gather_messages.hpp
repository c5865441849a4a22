#pragma once
/// \file
/// The moves of an all-gather: one message of `bytes` bytes of each rank to every rank, all of them in slot order; each
/// crosses nodes once, to the ranks of the same index, and then goes round inside the node.

#include <zeropp/execution/execution.hpp>
#include <zeropp/transport/communicator.hpp>

#include <cstddef>

namespace zeropp::detail {

/// Where this rank's message lies among all of them, in slot order.
template <class Communicator>
std::byte* own_message(const Communicator& comm, std::byte* messages, std::size_t bytes) {
    const auto groups = static_cast<std::size_t>(comm.topology().groups());
    const std::size_t slot =
        static_cast<std::size_t>(comm.index()) * groups + static_cast<std::size_t>(comm.group_id());
    return messages + slot * bytes;
}

/// Across nodes: gathers the messages of the ranks of this rank's index. Slot order puts them together, which is where
/// gather_inside wants them.
template <execution Execution, class Communicator>
void gather_across(const Execution& exec, Communicator& comm, std::byte* messages, std::size_t bytes) {
    const int groups = comm.topology().groups();
    if (groups == 1) return;
    std::byte* const of_index = messages + static_cast<std::size_t>(comm.index() * groups) * bytes;
    comm.across().all_gather(exec, own_message(comm, messages, bytes), of_index, bytes);
}

/// Inside the node: gathers what its ranks gathered across.
template <execution Execution, class Communicator>
void gather_inside(const Execution& exec, Communicator& comm, std::byte* messages, std::size_t bytes) {
    if (comm.topology().group_size() == 1) return;
    const std::size_t index_bytes = static_cast<std::size_t>(comm.topology().groups()) * bytes;
    const std::byte* const of_index = messages + static_cast<std::size_t>(comm.index()) * index_bytes;
    comm.group().all_gather(exec, of_index, messages, index_bytes);
}

}  // namespace zeropp::detail
