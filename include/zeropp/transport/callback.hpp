#pragma once
/// \file
/// A transport that calls a framework's functions.

#include <zeropp/core/error.hpp>
#include <zeropp/execution/execution.hpp>
#include <zeropp/transport/operation.hpp>
#include <zeropp/transport/transport.hpp>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace zeropp {

/// A framework's process group: its ranks and its functions. On host memory, functions that move bytes return when
/// their work is done, and `stream` is nullptr. The calling thread or the thread of a `host_queue` calls these
/// functions. On device memory, the calling thread calls them, and they enqueue work on `stream`, the execution's
/// native stream. No function is called to move 0 bytes.
struct process_group {
    /// Type of the functions that move bytes.
    using move = void(void* stream, const std::byte* send, std::byte* recv, std::size_t bytes);

    int rank = 0;
    int size = 1;
    /// Function that gathers `bytes` bytes of each rank on all ranks, as MPI_Allgather. `send` may be `recv` + rank *
    /// `bytes`, for which MPI takes MPI_IN_PLACE.
    std::function<move> all_gather;
    /// Function that sends `bytes` separate bytes from each rank to each rank, as MPI_Alltoall.
    std::function<move> all_to_all;
    /// Function that returns the group of `members`: ranks of this group, in their new order.
    std::function<process_group(std::span<const int> members)> split;
    /// Function that gathers `bytes` bytes of each of the lowest `roots` ranks on all ranks. A root's `send` may be
    /// `recv` + rank * `bytes`. Optional, but present on all ranks or on none. Quantized updates require `broadcast` if
    /// only some groups own weights.
    std::function<void(void* stream, const std::byte* send, std::byte* recv, std::size_t bytes, int roots)> broadcast =
        nullptr;
    /// Function that returns a new group of all ranks that are not in `excluded`, in the order of their ranks.
    /// Optional. The framework ends functions of the old group that still wait.
    std::function<process_group(std::span<const int> excluded)> shrink = nullptr;
};

/// A transport that moves bytes by the functions of a process_group. Collectives rethrow exceptions of the group's
/// functions. The transport has no timeout, but the functions may have one. Copies share the functions.
class callback_transport : public operations<callback_transport> {
public:
    /// Takes the ranks and functions of `group`. Throws precondition_error unless 0 <= group.rank < group.size; also if
    /// all_gather, all_to_all or split is missing.
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
    void move(const E& exec, const operation& what, const std::byte* send, std::byte* recv) {
        if (what.bytes == 0) return;
        const auto call = [group = group_, what, send, recv](void* stream) {
            if (what.kind == operation::broadcast) return group->broadcast(stream, send, recv, what.bytes, what.roots);
            const auto& moves = what.kind == operation::all_gather ? group->all_gather : group->all_to_all;
            moves(stream, send, recv, what.bytes);
        };
        if constexpr (host_execution<E>) {
            exec.enqueue([call] { call(nullptr); });
        } else {
            call(static_cast<void*>(exec.native()));
        }
    }

    /// True if the group has a function `broadcast`.
    template <execution E>
    bool broadcasts() const {
        return group_->broadcast != nullptr;
    }

    callback_transport split(std::span<const int> members) { return callback_transport(group_->split(members)); }

    /// Transport of the survivors of a failure, see shrinkable_transport. `excluded` names all ranks to leave out.
    /// Throws precondition_error if the group has no function `shrink`. Also throws unless the new group has as many
    /// ranks as survive, with this rank at its place among the survivors.
    shrunk<callback_transport> shrink(std::span<const int> excluded) {
        if (!group_->shrink) {
            throw precondition_error("callback_transport", "a group with a function for shrink", "one without");
        }
        detail::require_excluded("callback_transport", excluded, rank(), size());
        callback_transport next(group_->shrink(excluded));
        std::vector<int> survivors = detail::other_ranks(size(), excluded);
        const auto self = std::find(survivors.begin(), survivors.end(), rank()) - survivors.begin();
        const auto place = [](auto rank, auto size) { return std::to_string(rank) + " of " + std::to_string(size); };
        if (next.rank() != self || static_cast<std::size_t>(next.size()) != survivors.size()) {
            throw precondition_error("callback_transport",
                                     "a group in which this is rank " + place(self, survivors.size()),
                                     place(next.rank(), next.size()));
        }
        return {std::move(next), std::move(survivors)};
    }

private:
    std::shared_ptr<const process_group> group_;
};

}  // namespace zeropp
