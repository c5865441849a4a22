#pragma once
/// \file
/// A transport of functions that a framework brings.

#include <zeropp/core/error.hpp>
#include <zeropp/execution/execution.hpp>
#include <zeropp/transport/transport.hpp>

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

namespace zeropp {

/// A framework's process group, by what it can do. The functions are called in the turn of the execution: by the caller
/// for `host`, by the queue's thread for a `host_queue`, and for device memory by the caller, with the execution's
/// native stream, on which they enqueue their work. On the host `stream` is nullptr, and they return when they are
/// done.
struct process_group {
    using move = void(void* stream, const std::byte* send, std::byte* recv, std::size_t bytes);

    int rank = 0;
    int size = 1;
    /// As the transport concept's: `bytes` is what each rank sends to each.
    std::function<move> all_gather;
    std::function<move> all_to_all;
    /// The group of these members, ranks of this one in their new order.
    std::function<process_group(std::span<const int> members)> split;
    /// As broadcasting_transport_on has it. May be left out, on all ranks alike; with it, groups of ranks that own
    /// nothing can hold what others own.
    std::function<void(void* stream, const std::byte* send, std::byte* recv, std::size_t bytes, int roots)> broadcast =
        nullptr;
};

/// Moves bytes through a process_group, so through whatever a framework already has. What the group's functions throw,
/// the collective throws; timeouts are the group's. Copies share the functions.
class callback_transport {
public:
    /// Throws precondition_error where the rank is none of the group's, or a function is missing.
    explicit callback_transport(process_group group) {
        if (group.rank < 0 || group.rank >= group.size) {
            throw precondition_error("callback_transport", "a rank from 0 to " + std::to_string(group.size - 1),
                                     std::to_string(group.rank));
        }
        if (!group.all_gather || !group.all_to_all || !group.split) {
            throw precondition_error("callback_transport", "functions for all_gather, all_to_all and split",
                                     "a group without one of them");
        }
        group_ = std::make_shared<const process_group>(std::move(group));
    }

    int rank() const { return group_->rank; }
    int size() const { return group_->size; }

    template <execution E>
    void all_gather(const E& exec, const std::byte* send, std::byte* recv, std::size_t bytes) {
        call(exec, &process_group::all_gather, bytes, send, recv, bytes);
    }

    template <execution E>
    void all_to_all(const E& exec, const std::byte* send, std::byte* recv, std::size_t bytes) {
        call(exec, &process_group::all_to_all, bytes, send, recv, bytes);
    }

    /// Throws precondition_error where the group has no function for it.
    template <execution E>
    void broadcast(const E& exec, const std::byte* send, std::byte* recv, std::size_t bytes, int roots) {
        if (!group_->broadcast) {
            throw precondition_error("callback_transport", "a group with a function for broadcast", "one without");
        }
        detail::require_roots("callback_transport", roots, size());
        call(exec, &process_group::broadcast, bytes, send, recv, bytes, roots);
    }

    /// See can_broadcast.
    template <execution E>
    bool broadcasts() const {
        return group_->broadcast != nullptr;
    }

    callback_transport split(std::span<const int> members) { return callback_transport(group_->split(members)); }

private:
    template <execution E, class... Arguments>
    void call(const E& exec, std::function<void(void*, Arguments...)> process_group::*what, std::size_t bytes,
              std::type_identity_t<Arguments>... arguments) {
        if (bytes == 0) return;
        if constexpr (host_execution<E>) {
            exec.enqueue([=, group = group_] { ((*group).*what)(nullptr, arguments...); });
        } else {
            ((*group_).*what)(static_cast<void*>(exec.native()), arguments...);
        }
    }

    std::shared_ptr<const process_group> group_;
};

}  // namespace zeropp
