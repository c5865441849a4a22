#pragma once
/// \file
/// Ranks with a GPU each, connected by NCCL.

#include <zeropp/core/error.hpp>
#include <zeropp/execution/cuda_stream.hpp>
#include <zeropp/transport/deadline.hpp>
#include <zeropp/transport/nccl_family.hpp>
#include <zeropp/transport/operation.hpp>
#include <zeropp/transport/transport.hpp>

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <exception>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace zeropp {

/// A transport that moves bytes between GPUs by NCCL 2.18 or newer, on the caller's stream. Operations never wait for
/// the stream's work, so collectives can be captured into a CUDA graph.
///
/// Errors   NCCL notices some errors later (a dead peer, a broken link): the next operation, `check()` or `wait()`
///          throws nccl_error. After an error, a timeout or failed work of the stream, all transports split from one
///          another end the work of the communicators that they own. With a timeout and an NCCL that has
///          ncclCommRevoke, they revoke these communicators, which `shrink` can use. Otherwise they abort these
///          communicators. Later calls throw that error again. The streams' work ends, and buffers are the caller's
/// Timeout  ends `wait(exec)`, which the collectives' blocking overloads use, and the host's own waits: to connect, to
///          split, and for NCCL to accept an operation. It does not end `exec.wait()`, because NCCL waits on the GPU.
///          NCCL does not say which ranks were missing. The destructor waits for the communicator's work, and for the
///          destructors of the machine's other ranks. After the timeout, if any, it aborts all communicators instead
/// Graphs   destroy a captured graph before the transport, which would wait for it. With a timeout, capture is refused:
///          an abort would wait for the graph. A replay repeats the captured noise of `stochastic`, versions of
///          partitions and replicas, and residuals that counted as zeros
/// Streams  a pipeline keeps two communicators of a device busy. NCCL needs the kernels of both to fit on the GPU, and
///          all ranks to launch in one order, as the collectives do. With CUDA_DEVICE_MAX_CONNECTIONS=1, no launch of
///          another stream comes between theirs
/// Threads  only one thread at a time may call transports that were split from one another
class nccl_transport : public operations<nccl_transport> {
    using family = detail::nccl_family;

public:
    /// NCCL's id of a new communicator, for `create`. Make one id on one rank, and give it to all ranks by any means
    /// (MPI_Bcast, a file, a socket).
    static ncclUniqueId unique_id() {
        ncclUniqueId id;
        detail::require_nccl(ncclGetUniqueId(&id), "ncclGetUniqueId", nullptr);
        return id;
    }

    /// Makes a communicator of `ranks` ranks on the current device. Collective over the ranks with this `id`.
    static nccl_transport create(const ncclUniqueId& id, int ranks, int rank, transport_options options = {}) {
        detail::require_timeout(name, options);
        return nccl_transport(connect(id, ranks, rank, options.timeout), true, std::make_shared<family>(options), {});
    }

    /// Uses `comm`, which must outlive the transport. The caller destroys `comm`, or aborts it after a timeout_error.
    /// Until then, work of `comm` does not end. So with a timeout, give collectives scratch: without, they wait for
    /// that work. Unless `comm` is nonblocking (ncclConfig_t), the timeout does not limit the host's own waits: in
    /// operations, in `split`, and in destructors of splits.
    static nccl_transport borrow(ncclComm_t comm, transport_options options = {}) {
        detail::require_timeout(name, options);
        return nccl_transport(comm, false, std::make_shared<family>(options), {});
    }

    int rank() const { return state_->rank; }
    int size() const { return state_->size; }
    /// The transport's communicator.
    ncclComm_t native() const { return state_->comm; }

    /// Notes the collective's name for errors, see begin_collective.
    void begin(const collective_call& call, const std::string& /*problem*/) { state_->log.begin(call.primitive); }

    void move(const cuda_stream& stream, const operation& what, const std::byte* send, std::byte* recv) {
        const std::size_t bytes = what.bytes;
        const ncclComm_t comm = state_->comm;
        const cudaStream_t on = stream.native();
        state_->next(what, stream);
        if (what.kind == operation::all_gather) {
            return state_->settle(ncclAllGather(send, recv, bytes, ncclUint8, comm, on), "ncclAllGather");
        }
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 0)
        if (what.kind == operation::all_to_all) {
            return state_->settle(ncclAlltoAll(send, recv, bytes, ncclUint8, comm, on), "ncclAlltoAll");
        }
#endif
        state_->in_group([&](auto note) {
            for (int peer = 0; peer != (what.kind == operation::broadcast ? what.roots : size()); ++peer) {
                std::byte* const to = recv + static_cast<std::size_t>(peer) * bytes;
                if (what.kind == operation::broadcast) {
                    note(ncclBroadcast(send, to, bytes, ncclUint8, peer, comm, on), "ncclBroadcast");
                } else {
                    note(ncclSend(what.sent_to(peer, send), bytes, ncclUint8, peer, comm, on), "ncclSend");
                    note(ncclRecv(to, bytes, ncclUint8, peer, comm, on), "ncclRecv");
                }
            }
        });
    }

#ifdef NCCL_WIN_COLL_SYMMETRIC
    /// Registers `bytes` bytes from ncclMemAlloc as a symmetric window, for nccl_workspace. Collective, with equal
    /// `bytes`; blocks the caller. The transport must outlive the window.
    detail::nccl_window register_window(void* memory, std::size_t bytes) {
        state_->next({operation::registration, bytes});
        ncclWindow_t window = nullptr;
        state_->settle(ncclCommWindowRegister(state_->comm, memory, bytes, &window, NCCL_WIN_COLL_SYMMETRIC),
                       "ncclCommWindowRegister");
        return detail::nccl_window(window, {state_.get()});
    }
#endif

    /// Transport of `members`: ranks of this one, in their new order. Blocks the caller. Throws precondition_error if
    /// `members` lacks this rank, has ranks that do not exist, or others than the lists that begin with the same one.
    nccl_transport split(std::span<const int> members) {
        const std::optional<precondition_error> wrong = detail::split_error(name, members, rank(), size());
        const auto place = std::ranges::find(members, rank()) - members.begin();
        state_->next({operation::split});
        // A rank with a wrong list takes part before it throws, so that the others do not wait for it.
        const int colour = wrong ? NCCL_SPLIT_NOCOLOR : members.front();
        const ncclComm_t child = state_->made_by([&](ncclComm_t* made) {
            state_->settle(ncclCommSplit(state_->comm, colour, static_cast<int>(place), made, nullptr),
                           "ncclCommSplit");
        });
        if (wrong) throw precondition_error(*wrong);
        nccl_transport part(child, true, state_->relatives, state_->log.split());
        if (part.size() != std::ssize(members)) throw detail::joined_error(name, members, part.size());
        return part;
    }

    /// Transport of the survivors of a failure, see shrinkable_transport. `excluded` names all ranks to leave out.
    /// Blocks the caller. Throws precondition_error if `excluded` is empty, if NCCL is older than 2.27, or if the
    /// failure has aborted the communicator. If it throws timeout_error, because another rank has died, it can be
    /// called again with more `excluded` ranks.
    shrunk<nccl_transport> shrink(std::span<const int> excluded = {}) {
        detail::require_excluded(name, excluded, rank(), size());
        if (excluded.empty()) {
            state_->check();
            throw precondition_error(name, "the ranks to leave out, which NCCL does not find", "none");
        }
        const transport_options options{.timeout = state_->relatives->timeout};
        std::vector<int> survivors = detail::other_ranks(size(), excluded);
        // Each rank once: NCCL subtracts the length of the list from the number of ranks.
        ncclComm_t next = state_->shrink(detail::other_ranks(size(), survivors));
        nccl_transport left(next, true, std::make_shared<family>(options), {});
        if (!state_->relatives->failure.any()) {
            state_->relatives->failure.set(
                std::make_exception_ptr(peer_error(std::string(name) + ": this rank has called shrink")));
            state_->relatives->end_all();
        }
        return {std::move(left), std::move(survivors)};
    }

    /// Throws the first failure again, or nccl_error if NCCL has noticed an error. Blocks only to end the communicators
    /// after a new error.
    void check() { state_->check(); }

    /// Blocks the caller until all work on `stream` is complete. After the timeout, if any, throws timeout_error.
    void wait(const cuda_stream& stream) { state_->wait(stream.native()); }

private:
    static constexpr const char* name = family::name;

    /// Makes a communicator, nonblocking if there is a timeout.
    static ncclComm_t connect(const ncclUniqueId& id, int ranks, int rank, std::chrono::milliseconds timeout) {
        ncclComm_t comm = nullptr;
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        config.blocking = timeout == std::chrono::milliseconds::zero() ? 1 : 0;
        ncclResult_t code = ncclCommInitRankConfig(&comm, ranks, id, rank, &config);
        const bool in_time = detail::nccl_settled(comm, code, timeout);
        if (in_time && code == ncclSuccess) return comm;
        const std::string text = detail::nccl_last_error(comm);
        if (comm != nullptr) ncclCommAbort(comm);
        if (in_time) throw nccl_error("ncclCommInitRankConfig", code, text);
        throw detail::timed_out(name, timeout, "ncclCommInitRankConfig",
                                "not heard from all of " + std::to_string(ranks) + " ranks");
    }

    nccl_transport(ncclComm_t comm, bool owned, std::shared_ptr<family> relatives, detail::call_log log)
        : state_(std::make_unique<family::state>(comm, owned, std::move(relatives), std::move(log))) {}

    std::unique_ptr<family::state> state_;
};

}  // namespace zeropp
