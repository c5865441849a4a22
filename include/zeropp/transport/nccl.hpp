#pragma once
/// \file
/// Ranks with a GPU each, connected by NCCL.

#include <zeropp/core/error.hpp>
#include <zeropp/execution/cuda_stream.hpp>
#include <zeropp/transport/deadline.hpp>
#include <zeropp/transport/nccl_call.hpp>
#include <zeropp/transport/poll.hpp>
#include <zeropp/transport/transport.hpp>

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace zeropp {

/// Moves bytes between GPUs with NCCL, on the caller's stream. Operations never block on the stream's work: collectives
/// can be captured into a CUDA graph.
///
/// Errors that NCCL notices later (a dead peer, a broken link) are raised as nccl_error by the next operation, by
/// `check()` or by `wait()`. After an error, this transport and all that are split from it or from what it was split
/// from abort their communicators, as far as they own them, so that nothing is leaked and the streams' work ends, and
/// throw the first error again. Memory is the caller's again when the stream's work has ended.
///
/// NCCL waits for its peers on the GPU, where no deadline counts. With a timeout, `wait(exec)` in place of
/// `exec.wait()` gives up when the stream's work is not complete within it, and aborts; the collectives' overloads that
/// block use it, through wait_for. What the host waits for (connecting, splitting, an operation that NCCL has not yet
/// accepted) ends at the deadline, too. NCCL does not say which ranks were missing. Destruction waits for the
/// communicator's work, with a timeout no longer than that, and then aborts all. Needs NCCL 2.18 or newer.
///
/// Graphs   a captured graph refers to the communicators: destroy it before the transport, which would wait for it.
///          Refused with a timeout: an abort would wait for the graph. A replay repeats what was captured: the
///          residuals that counted as zeros then, the noise of `stochastic`, versions
/// Streams  with a pipeline, two communicators of one device work at a time. NCCL promises progress where all ranks
///          launch in the same order, as the collectives do, and the GPU has room for the kernels of both; with
///          CUDA_DEVICE_MAX_CONNECTIONS=1, launches of other streams do not come between them
/// Threads  transports that are split from one another are used by one thread at a time
class nccl_transport {
    struct state;

public:
    /// An id for `create`: made on one rank, given to all by any means (MPI_Bcast, a file, a socket).
    static ncclUniqueId unique_id() {
        ncclUniqueId id;
        detail::require_nccl(ncclGetUniqueId(&id), "ncclGetUniqueId", nullptr);
        return id;
    }

    /// Makes a communicator of `ranks` ranks on the current device. Collective over the ranks that share `id`.
    static nccl_transport create(const ncclUniqueId& id, int ranks, int rank, transport_options options = {}) {
        detail::require_timeout(name, options);
        return nccl_transport(connect(id, ranks, rank, options.timeout), true, std::make_shared<family>(options), {});
    }

    /// Uses `comm`, which must outlive the transport and stays the caller's to destroy or abort: after a timeout_error,
    /// to abort. What the host waits for in splitting it ends within a timeout if it does not block (ncclConfig_t).
    static nccl_transport borrow(ncclComm_t comm, transport_options options = {}) {
        detail::require_timeout(name, options);
        return nccl_transport(comm, false, std::make_shared<family>(options), {});
    }

    int rank() const { return state_->rank; }
    int size() const { return state_->size; }
    /// The communicator itself.
    ncclComm_t native() const { return state_->comm; }

    /// So that errors name the collective. See begin_collective.
    void begin(const collective_call& call, const std::string& problem) {
        state_->log.begin(call.primitive);
        detail::require_no_problem(call, problem);
    }

    void all_gather(const cuda_stream& stream, const std::byte* send, std::byte* recv, std::size_t bytes) {
        state_->next(detail::operation::all_gather, bytes, stream.native());
        state_->settle(ncclAllGather(send, recv, bytes, ncclUint8, state_->comm, stream.native()), "ncclAllGather");
    }

    void all_to_all(const cuda_stream& stream, const std::byte* send, std::byte* recv, std::size_t bytes) {
        state_->next(detail::operation::all_to_all, bytes, stream.native());
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 0)
        state_->settle(ncclAlltoAll(send, recv, bytes, ncclUint8, state_->comm, stream.native()), "ncclAlltoAll");
#else
        state_->in_group([&](auto note) {
            for (int peer = 0; peer != size(); ++peer) {
                const std::size_t at = static_cast<std::size_t>(peer) * bytes;
                note(ncclSend(send + at, bytes, ncclUint8, peer, state_->comm, stream.native()), "ncclSend");
                note(ncclRecv(recv + at, bytes, ncclUint8, peer, state_->comm, stream.native()), "ncclRecv");
            }
        });
#endif
    }

    void broadcast(const cuda_stream& stream, const std::byte* send, std::byte* recv, std::size_t bytes, int roots) {
        detail::require_roots("nccl_transport", roots, size());
        state_->next(detail::operation::broadcast, bytes, stream.native(), roots);
        state_->in_group([&](auto note) {
            for (int root = 0; root != roots; ++root) {
                std::byte* const to = recv + static_cast<std::size_t>(root) * bytes;
                note(ncclBroadcast(send, to, bytes, ncclUint8, root, state_->comm, stream.native()), "ncclBroadcast");
            }
        });
    }

    /// Blocks the caller.
    nccl_transport split(std::span<const int> members) {
        const auto self = std::find(members.begin(), members.end(), rank());
        const bool listed = self != members.end();
        const int place = listed ? static_cast<int>(self - members.begin()) : -1;
        state_->check();
        state_->relatives->last = state_->log.next(detail::operation::split, 0);
        // A rank with a wrong list takes part before it throws, so that the others do not wait for it.
        ncclComm_t child = nullptr;
        const int colour = listed ? members.front() : NCCL_SPLIT_NOCOLOR;
        state_->settle(ncclCommSplit(state_->comm, colour, place, &child, nullptr), "ncclCommSplit");
        if (!listed) throw precondition_error("split", "a list with rank " + std::to_string(rank()), "one without");
        return nccl_transport(child, true, state_->relatives, state_->log.split());
    }

    /// Throws nccl_error if NCCL has noticed an error since. Does not block.
    void check() { state_->check(); }

    /// Blocks the caller until all work on `stream` is complete, within the timeout, if there is one.
    void wait(const cuda_stream& stream) { state_->wait(stream.native()); }

private:
    static constexpr const char* name = "nccl_transport";

    /// All transports split from one another: they fail together, since a stream may hold work of all of them.
    struct family {
        explicit family(transport_options options) : timeout(options.timeout) {}

        const std::chrono::milliseconds timeout;
        detail::first_failure failure;
        std::vector<state*> members;
        detail::operation_in_call last;  // that was asked for

        bool timed() const { return timeout != std::chrono::milliseconds::zero(); }

        /// Ends all communicators' work, and throws the first failure.
        [[noreturn]] void fail(std::exception_ptr cause) {
            failure.set(cause);
            abort_all();
            failure.rethrow();
            std::terminate();
        }

        /// Whatever streams wait for: it will not come. All communicators at once, each on a thread: an abort waits for
        /// the device, and so for the kernels of communicators that have not been told.
        void abort_all() noexcept {
            std::vector<std::jthread> aborts;
            aborts.reserve(members.size());
            ncclComm_t own = nullptr;
            for (state* s : members) {
                if (!s->owned || s->comm == nullptr) continue;
                if (own != nullptr) aborts.emplace_back([own] { ncclCommAbort(own); });
                own = std::exchange(s->comm, nullptr);
            }
            if (own != nullptr) ncclCommAbort(own);
        }

        [[noreturn]] void time_out(const std::string& waited_for) {
            fail(std::make_exception_ptr(timeout_error(
                std::string(name) + ": timeout of " + std::to_string(timeout.count()) + " ms in " + last.text() +
                ": waited for " + waited_for + "; NCCL does not say which ranks were not heard from")));
        }
    };

    struct state {
        ncclComm_t comm;
        bool owned;
        std::shared_ptr<family> relatives;
        detail::call_log log;
        int rank = 0;
        int size = 0;

        state(ncclComm_t c, bool own, std::shared_ptr<family> f, detail::call_log l)
            : comm(c), owned(own), relatives(std::move(f)), log(std::move(l)) {
            // Not `settle`: what fails here has no destructor yet to abort the communicator.
            const char* call = "ncclCommUserRank";
            ncclResult_t code = ncclCommUserRank(comm, &rank);
            if (code == ncclSuccess) {
                call = "ncclCommCount";
                code = ncclCommCount(comm, &size);
            }
            if (code == ncclSuccess) {
                relatives->members.push_back(this);
                return;
            }
            const std::string detail = detail::nccl_last_error(comm);
            if (owned) ncclCommAbort(comm);
            throw nccl_error(call, code, detail);
        }

        ~state() {
            if (owned && comm != nullptr) {
                // Not what would wait for work that never ends.
                const ncclResult_t code = noticed();
                if (code == ncclSuccess && finalized()) {
                    ncclCommDestroy(std::exchange(comm, nullptr));
                } else {
                    relatives->failure.set(
                        code != ncclSuccess
                            ? std::make_exception_ptr(
                                  nccl_error("a destroyed transport", code, detail::nccl_last_error(comm)))
                            : std::make_exception_ptr(timeout_error(
                                  std::string(name) + ": timeout of " + std::to_string(relatives->timeout.count()) +
                                  " ms in the destructor of a transport: its work did not end")));
                    relatives->abort_all();
                }
            }
            std::erase(relatives->members, this);
        }

        state(const state&) = delete;
        state& operator=(const state&) = delete;

        /// Whether all work of the communicator has ended, or, with a timeout, ends within it. Without one, destroying
        /// waits for that.
        bool finalized() const {
            if (!relatives->timed()) return true;
            ncclResult_t code = ncclCommFinalize(comm);
            return detail::nccl_settled(comm, code, relatives->timeout) && code == ncclSuccess;
        }

        /// Begins an operation on `stream`.
        void next(detail::operation what, std::size_t bytes, cudaStream_t stream, int roots = 0) {
            check();
            relatives->last = log.next(what, bytes, roots);
            if (!relatives->timed()) return;
            cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
            detail::require_cuda(cudaStreamIsCapturing(stream, &status), "cudaStreamIsCapturing");
            if (status != cudaStreamCaptureStatusNone) {
                throw precondition_error(name,
                                         "no timeout where a CUDA graph is captured, whose work cannot be aborted",
                                         "one of " + std::to_string(relatives->timeout.count()) + " ms");
            }
        }

        /// Waits until a call has been accepted, where the communicator is a nonblocking one, and throws if it failed.
        void settle(ncclResult_t code, const char* call) {
            if (!detail::nccl_settled(comm, code, relatives->timeout)) relatives->time_out(call);
            if (code != ncclSuccess) fail(call, code);
        }

        /// What NCCL has noticed since.
        ncclResult_t noticed() const {
            ncclResult_t code = ncclSuccess;
            const ncclResult_t asked = ncclCommGetAsyncError(comm, &code);
            if (asked != ncclSuccess) return asked;
            return code == ncclInProgress ? ncclSuccess : code;
        }

        void check() {
            relatives->failure.rethrow();
            const ncclResult_t code = noticed();
            if (code != ncclSuccess) fail("an earlier NCCL operation", code);
        }

        [[noreturn]] void fail(const char* call, ncclResult_t code) {
            relatives->fail(std::make_exception_ptr(nccl_error(call, code, detail::nccl_last_error(comm))));
        }

        void wait(cudaStream_t stream) {
            check();
            if (!relatives->timed()) return require_work(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
            cudaError_t code = cudaSuccess;
            const auto done = [&] {
                code = cudaStreamQuery(stream);
                if (code != cudaErrorNotReady) return true;
                cudaGetLastError();  // which that is no error to
                for (state* s : relatives->members) s->check();
                return false;
            };
            if (!detail::poll_until(done, detail::deadline_after(relatives->timeout))) {
                relatives->time_out("the stream");
            }
            require_work(code, "cudaStreamQuery");
        }

        /// An error of the device's work is one of all transports: theirs will not end. One of the call itself, as on a
        /// stream that is being captured, is not.
        void require_work(cudaError_t code, const char* call) {
            try {
                detail::require_cuda(code, call);
            } catch (const cuda_error&) {
                if (code == cudaErrorInvalidValue || code == cudaErrorInvalidResourceHandle ||
                    (code >= cudaErrorStreamCaptureUnsupported && code <= cudaErrorStreamCaptureWrongThread)) {
                    throw;
                }
                relatives->fail(std::current_exception());
            }
        }

        /// Makes the calls of `calls(note)` one; each is a note(result, name).
        template <class Calls>
        void in_group(Calls calls) {
            settle(ncclGroupStart(), "ncclGroupStart");
            ncclResult_t code = ncclSuccess;
            const char* call = nullptr;
            const auto note = [&](ncclResult_t result, const char* name) {
                const bool failed_before = code != ncclSuccess && code != ncclInProgress;
                if (failed_before || result == ncclSuccess) return;
                code = result;
                call = name;
            };
            calls(note);
            // After a failure too: a group that stays open holds back all that this thread asks of NCCL later.
            note(ncclGroupEnd(), "ncclGroupEnd");
            settle(code, call);
        }
    };

    /// A new communicator, which does not block where there is a timeout.
    static ncclComm_t connect(const ncclUniqueId& id, int ranks, int rank, std::chrono::milliseconds timeout) {
        ncclComm_t comm = nullptr;
        if (timeout != std::chrono::milliseconds::zero()) {
            ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
            config.blocking = 0;
            ncclResult_t code = ncclCommInitRankConfig(&comm, ranks, id, rank, &config);
            const bool in_time = detail::nccl_settled(comm, code, timeout);
            if (in_time && code == ncclSuccess) return comm;
            const std::string detail = detail::nccl_last_error(comm);
            if (comm != nullptr) ncclCommAbort(comm);
            if (in_time) throw nccl_error("ncclCommInitRankConfig", code, detail);
            throw timeout_error(std::string(name) + ": timeout of " + std::to_string(timeout.count()) +
                                " ms in ncclCommInitRankConfig: not heard from all of " + std::to_string(ranks) +
                                " ranks");
        }
        detail::require_nccl(ncclCommInitRank(&comm, ranks, id, rank), "ncclCommInitRank", nullptr);
        return comm;
    }

    nccl_transport(ncclComm_t comm, bool owned, std::shared_ptr<family> relatives, detail::call_log log)
        : state_(std::make_unique<state>(comm, owned, std::move(relatives), std::move(log))) {}

    std::unique_ptr<state> state_;
};

static_assert(transport_on<nccl_transport, cuda_stream>);

}  // namespace zeropp
