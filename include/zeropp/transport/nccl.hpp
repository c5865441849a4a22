#pragma once
/// \file
/// Ranks with a GPU each, connected by NCCL.

#include <zeropp/core/error.hpp>
#include <zeropp/execution/cuda_stream.hpp>
#include <zeropp/transport/deadline.hpp>
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

#if NCCL_VERSION_CODE < NCCL_VERSION(2, 18, 0)
#error "zeropp needs NCCL 2.18 or newer"
#endif

namespace zeropp {

/// A call to NCCL that failed, with NCCL's text; `code()` is NCCL's result code.
class nccl_error : public error {
public:
    nccl_error(const std::string& call, ncclResult_t code, const std::string& detail)
        : error(call + ": " + ncclGetErrorString(code) + (detail.empty() ? "" : " (" + detail + ")")), code_(code) {}

    ncclResult_t code() const { return code_; }

private:
    ncclResult_t code_;
};

namespace detail {

inline std::string nccl_last_error(ncclComm_t comm) {
    const char* text = ncclGetLastError(comm);
    return text ? text : "";
}

inline void require_nccl(ncclResult_t code, const char* call, ncclComm_t comm) {
    if (code != ncclSuccess) throw nccl_error(call, code, nccl_last_error(comm));
}

/// Polls `comm` until `code` is not ncclInProgress, and stores the result in `code`. Returns false after `timeout`.
inline bool nccl_settled(ncclComm_t comm, ncclResult_t& code, std::chrono::milliseconds timeout) {
    const auto done = [&] {
        if (code != ncclInProgress) return true;
        const ncclResult_t asked = ncclCommGetAsyncError(comm, &code);
        if (asked != ncclSuccess) code = asked;
        return code != ncclInProgress;
    };
    return poll_until(done, deadline_after(timeout));
}

}  // namespace detail

/// Moves bytes between GPUs with NCCL 2.18 or newer, on the caller's stream. Operations never wait for the stream's
/// work, so collectives can be captured into a CUDA graph.
///
/// Errors   NCCL notices some later (a dead peer, a broken link): the next operation, `check()` or `wait()` throws
///          nccl_error. After an error, a timeout or failed work of the stream, all transports split from one another
///          abort the communicators that they own. They throw that error again. The streams' work ends, and buffers
///          are the caller's
/// Timeout  ends `wait(exec)`, which the collectives' blocking overloads use, and the host's own waits: to connect, to
///          split, and for NCCL to accept an operation. It does not end `exec.wait()`, because NCCL waits on the GPU.
///          NCCL does not say which ranks were missing. The destructor waits for the communicator's work; with a
///          timeout no longer than that, and then it aborts all
/// Graphs   destroy a captured graph before the transport, which would wait for it. With a timeout, capture is refused:
///          an abort would wait for the graph. A replay repeats the captured noise of `stochastic`, versions, and
///          residuals that counted as zeros
/// Streams  a pipeline keeps two communicators of a device busy. NCCL needs the kernels of both to fit on the GPU, and
///          all ranks to launch in one order, as the collectives do. With CUDA_DEVICE_MAX_CONNECTIONS=1, no launch of
///          another stream comes between theirs
/// Threads  one thread at a time uses transports that are split from one another
class nccl_transport {
    struct state;

public:
    /// Id for `create`. Make it on one rank and give it to all by any means (MPI_Bcast, a file, a socket).
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

    /// Uses `comm`, which must outlive the transport. The caller destroys it; after a timeout_error, aborts it. The
    /// timeout limits the host's waits in `split` only if `comm` is nonblocking (ncclConfig_t).
    static nccl_transport borrow(ncclComm_t comm, transport_options options = {}) {
        detail::require_timeout(name, options);
        return nccl_transport(comm, false, std::make_shared<family>(options), {});
    }

    int rank() const { return state_->rank; }
    int size() const { return state_->size; }
    /// The transport's communicator.
    ncclComm_t native() const { return state_->comm; }

    /// Notes the collective's name for errors, see begin_collective.
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

    /// Throws the first failure again, or nccl_error if NCCL has noticed an error. Does not block.
    void check() { state_->check(); }

    /// Blocks the caller until all work on `stream` is complete. After the timeout, if any, throws timeout_error.
    void wait(const cuda_stream& stream) { state_->wait(stream.native()); }

private:
    static constexpr const char* name = "nccl_transport";

    /// All transports split from one another. They fail together, because a stream may hold work of all of them.
    struct family {
        explicit family(transport_options options) : timeout(options.timeout) {}

        const std::chrono::milliseconds timeout;
        detail::first_failure failure;
        std::vector<state*> members;
        detail::operation_in_call last;  // the last operation that the caller asked for

        bool timed() const { return timeout != std::chrono::milliseconds::zero(); }

        /// Aborts all communicators and throws the first failure.
        [[noreturn]] void fail(std::exception_ptr cause) {
            failure.set(cause);
            abort_all();
            failure.rethrow();
            std::terminate();
        }

        /// Aborts all communicators that the family owns, at once, each on a thread. An abort waits for the device, so
        /// also for kernels of communicators that are not aborted yet.
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
            // After an exception here no destructor aborts the communicator.
            try {
                detail::require_nccl(ncclCommUserRank(comm, &rank), "ncclCommUserRank", comm);
                detail::require_nccl(ncclCommCount(comm, &size), "ncclCommCount", comm);
                relatives->members.push_back(this);
            } catch (...) {
                if (owned) ncclCommAbort(comm);
                throw;
            }
        }

        ~state() {
            if (owned && comm != nullptr) {
                // ncclCommDestroy would wait for work that never ends.
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

        /// True if the communicator can be destroyed. With a timeout, first waits that long for its work; else
        /// destroying waits.
        bool finalized() const {
            if (!relatives->timed()) return true;
            ncclResult_t code = ncclCommFinalize(comm);
            return detail::nccl_settled(comm, code, relatives->timeout) && code == ncclSuccess;
        }

        /// Notes an operation that begins on `stream`, after a check for earlier errors.
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

        /// Waits until a nonblocking communicator has accepted a call. Throws if the call failed.
        void settle(ncclResult_t code, const char* call) {
            if (!detail::nccl_settled(comm, code, relatives->timeout)) relatives->time_out(call);
            if (code != ncclSuccess) fail(call, code);
        }

        /// Result of the last operations as NCCL knows it now; ncclSuccess while they run.
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
                cudaGetLastError();  // clears cudaErrorNotReady, which is no failure
                for (state* s : relatives->members) s->check();
                return false;
            };
            if (!detail::poll_until(done, detail::deadline_after(relatives->timeout))) {
                relatives->time_out("the stream");
            }
            require_work(code, "cudaStreamQuery");
        }

        /// Throws if `code` is an error. An error of the device's work fails the whole family, because no transport's
        /// work will end. An error of the call itself, as on a stream that is being captured, does not.
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

        /// Runs the NCCL calls of `calls` as one group; `calls` passes each result and name to its argument, `note`.
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
            // After a failure too: an open group would delay all later NCCL calls of this thread.
            note(ncclGroupEnd(), "ncclGroupEnd");
            settle(code, call);
        }
    };

    /// Makes a communicator, nonblocking if there is a timeout.
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

}  // namespace zeropp
