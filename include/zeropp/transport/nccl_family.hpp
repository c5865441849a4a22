#pragma once
/// \file
/// Communicators of NCCL that fail together.

#include <zeropp/core/error.hpp>
#include <zeropp/execution/cuda_stream.hpp>
#include <zeropp/transport/deadline.hpp>
#include <zeropp/transport/failure.hpp>
#include <zeropp/transport/operation.hpp>

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <list>
#include <memory>
#include <string>
#include <thread>
#include <type_traits>
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

/// Result of the calls on `comm` as NCCL knows it now; ncclInProgress while a nonblocking call runs.
inline ncclResult_t nccl_result(ncclComm_t comm) {
    ncclResult_t code = ncclSuccess;
    const ncclResult_t asked = ncclCommGetAsyncError(comm, &code);
    return asked != ncclSuccess ? asked : code;
}

/// Polls `comm` until `code` is not ncclInProgress, and stores the result in `code`. Returns false after `timeout`.
inline bool nccl_settled(ncclComm_t comm, ncclResult_t& code, std::chrono::milliseconds timeout) {
    const auto done = [&] {
        if (code == ncclInProgress) code = nccl_result(comm);
        return code != ncclInProgress;
    };
    return poll_until(done, deadline_after(timeout));
}

/// The communicators of all transports that were split from one another. They fail together, because a stream may hold
/// work of all of them.
struct nccl_family {
    struct state;

    static constexpr const char* name = "nccl_transport";

    explicit nccl_family(transport_options options) : timeout(options.timeout) {}

    const std::chrono::milliseconds timeout;
    first_failure failure;
    std::vector<state*> members;
    operation_in_call last;  // the last operation that the caller asked for

    bool timed() const { return timeout != std::chrono::milliseconds::zero(); }

    /// Notes the failure `cause`, ends the work of all communicators that the family owns, and throws the family's
    /// first failure.
    [[noreturn]] void fail(std::exception_ptr cause);

    /// Ends the work of all communicators that the family owns. With a timeout and an NCCL that has ncclCommRevoke,
    /// revokes these communicators, which can then shrink. Otherwise aborts them. NCCL does not tell the peers, which
    /// notice at their own deadline.
    void end_all() noexcept;

    /// Aborts all communicators that the family owns.
    void abort_all() noexcept;

    /// Calls end(s) for each communicator that the family owns, each on another thread at the same time. `end` may wait
    /// for the device, so also for kernels of communicators that have not ended yet.
    template <class End>
    void on_each_owned(End end) noexcept;

    [[noreturn]] void time_out(const std::string& waited_for) {
        fail(std::make_exception_ptr(
            timed_out(name, timeout, last.text(),
                      "waited for " + waited_for + "; NCCL does not say which ranks were not heard from")));
    }
};

/// One NCCL communicator of a family, and the log of its operations.
struct nccl_family::state {
    ncclComm_t comm;
    bool owned;
    std::shared_ptr<nccl_family> relatives;
    call_log log;
    int rank = 0;
    int size = 0;
    /// Communicators of splits and shrinks that failed. NCCL may write to them until `comm` has ended.
    std::list<ncclComm_t> unmade;

    state(ncclComm_t c, bool own, std::shared_ptr<nccl_family> f, call_log l)
        : comm(c), owned(own), relatives(std::move(f)), log(std::move(l)) {
        // Aborts the communicator here: if this constructor throws, no destructor does so.
        try {
            require_nccl(ncclCommUserRank(comm, &rank), "ncclCommUserRank", comm);
            require_nccl(ncclCommCount(comm, &size), "ncclCommCount", comm);
            relatives->members.push_back(this);
        } catch (...) {
            if (owned) ncclCommAbort(comm);
            throw;
        }
    }

    ~state() {
        if (owned && comm != nullptr && relatives->failure.any()) {
            ncclCommAbort(std::exchange(comm, nullptr));
        } else if (owned && comm != nullptr) {
            // After an error or without progress, ncclCommDestroy would wait for work that never ends.
            const ncclResult_t code = noticed();
            if (code == ncclSuccess && finalized()) {
                ncclCommDestroy(std::exchange(comm, nullptr));
            } else {
                relatives->failure.set(
                    code != ncclSuccess
                        ? std::make_exception_ptr(nccl_error("a destroyed transport", code, nccl_last_error(comm)))
                        : std::make_exception_ptr(timed_out(name, relatives->timeout, "the destructor of a transport",
                                                            "its work did not end")));
                relatives->abort_all();
            }
        }
        std::erase(relatives->members, this);
        if (owned) {
            for (const ncclComm_t failed : unmade) {
                if (failed != nullptr) ncclCommAbort(failed);
            }
        } else if (!unmade.empty()) {
            keep_until_exit(std::make_shared<std::list<ncclComm_t>>(std::move(unmade)));
        }
    }

    state(const state&) = delete;
    state& operator=(const state&) = delete;

    /// True if the communicator can be destroyed. With a timeout, first calls ncclCommFinalize, and waits that long for
    /// its end. Without one, ncclCommDestroy waits.
    bool finalized() const {
        if (!relatives->timed()) return true;
        ncclResult_t code = ncclCommFinalize(comm);
        return nccl_settled(comm, code, relatives->timeout) && code == ncclSuccess;
    }

    /// Notes that the operation `what` begins. Throws an earlier error.
    void next(const operation& what) {
        check();
        relatives->last = log.next(what);
    }

    /// Notes that the operation `what` begins on `stream`. Throws an earlier error, and precondition_error if `stream`
    /// is captured although there is a timeout.
    void next(const operation& what, const cuda_stream& stream) {
        next(what);
        if (relatives->timed() && stream.is_captured()) {
            throw precondition_error(name, "no timeout where a CUDA graph is captured, whose work cannot be aborted",
                                     "one of " + std::to_string(relatives->timeout.count()) + " ms");
        }
    }

    /// Waits until the communicator has accepted the NCCL function `call`, which returned `code`: a nonblocking one may
    /// return ncclInProgress. Throws if the function failed.
    void settle(ncclResult_t code, const char* call) {
        if (!nccl_settled(comm, code, relatives->timeout)) relatives->time_out(call);
        if (code != ncclSuccess) fail(call, code);
    }

    /// Returns the communicator that call(address) makes, null if it makes none. `call` must throw if NCCL fails, or
    /// does not end in time. NCCL may write to the address after that. So the address stays valid until `comm` has
    /// ended.
    template <class Call>
    ncclComm_t made_by(Call call) {
        call(&unmade.emplace_back(nullptr));
        const ncclComm_t made = unmade.back();
        unmade.pop_back();
        return made;
    }

    /// Result of the communicator's operations as NCCL knows it now; ncclSuccess while they run.
    ncclResult_t noticed() const {
        const ncclResult_t code = nccl_result(comm);
        return code == ncclInProgress ? ncclSuccess : code;
    }

    void check() {
        relatives->failure.rethrow();
        const ncclResult_t code = noticed();
        if (code != ncclSuccess) fail("an earlier NCCL operation", code);
    }

    [[noreturn]] void fail(const char* call, ncclResult_t code) {
        relatives->fail(std::make_exception_ptr(nccl_error(call, code, nccl_last_error(comm))));
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
        if (!poll_until(done, deadline_after(relatives->timeout))) relatives->time_out("the stream");
        require_work(code, "cudaStreamQuery");
    }

    /// Throws if `code`, the result of the CUDA function `call`, is an error. An error of the device's work fails the
    /// whole family, because no transport's work will end. An error of the call itself, as on a stream that is being
    /// captured, fails no transport.
    void require_work(cudaError_t code, const char* call) {
        try {
            require_cuda(code, call);
        } catch (const cuda_error&) {
            if (code == cudaErrorInvalidValue || code == cudaErrorInvalidResourceHandle ||
                (code >= cudaErrorStreamCaptureUnsupported && code <= cudaErrorStreamCaptureWrongThread)) {
                throw;
            }
            relatives->fail(std::current_exception());
        }
    }

    /// Makes and returns a communicator of all ranks that are not in `excluded`.
    ncclComm_t shrink([[maybe_unused]] std::vector<int> excluded) {
#ifdef NCCL_SHRINK_ABORT
        if (comm == nullptr) {
            throw precondition_error(name, "a timeout and an NCCL with ncclCommRevoke, to shrink after a failure",
                                     "communicators that the failure has aborted");
        }
        return made_by([&](ncclComm_t* next) {
            ncclResult_t code = ncclCommShrink(comm, excluded.data(), static_cast<int>(excluded.size()), next, nullptr,
                                               NCCL_SHRINK_ABORT);
            if (nccl_settled(comm, code, relatives->timeout)) return require_nccl(code, "ncclCommShrink", comm);
            throw timed_out(name, relatives->timeout, "ncclCommShrink",
                            "not heard from all ranks that are not excluded");
        });
#else
        throw precondition_error(name, "NCCL 2.27 or newer, to shrink", "an older one");
#endif
    }

    /// Runs `calls(note)` between ncclGroupStart and ncclGroupEnd. `calls` must pass each NCCL call's result and name
    /// to `note`. Throws the first failure.
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
        // Ends the group after a failure, too: an open group would delay all later NCCL calls of this thread.
        note(ncclGroupEnd(), "ncclGroupEnd");
        settle(code, call);
    }
};

#ifdef NCCL_WIN_COLL_SYMMETRIC
/// Ends the registration of a window. The communicator of `of` has not ended, or a failure has aborted it with its
/// windows.
struct end_of_window {
    const nccl_family::state* of;

    void operator()(ncclWindow_t window) const {
        if (of->comm == nullptr) return;
        ncclResult_t code = ncclCommWindowDeregister(of->comm, window);
        nccl_settled(of->comm, code, of->relatives->timeout);
    }
};
/// A registered window. Null if NCCL makes no use of it.
using nccl_window = std::unique_ptr<std::remove_pointer_t<ncclWindow_t>, end_of_window>;
#endif

inline void nccl_family::fail(std::exception_ptr cause) {
    failure.set(std::move(cause));
    end_all();
    failure.rethrow();
    std::terminate();
}

template <class End>
void nccl_family::on_each_owned(End end) noexcept {
    std::vector<std::jthread> threads;
    threads.reserve(members.size());
    // A new thread has device 0, which NCCL restores when it returns. That makes a context on another rank's GPU.
    int device = 0;
    cudaGetDevice(&device);
    const auto on_device = [end, device](state* s) {
        cudaSetDevice(device);
        end(s);
    };
    state* own = nullptr;
    for (state* s : members) {
        if (!s->owned || s->comm == nullptr) continue;
        if (own != nullptr) threads.emplace_back(on_device, own);
        own = s;
    }
    if (own != nullptr) end(own);
}

inline void nccl_family::end_all() noexcept {
#ifdef NCCL_REVOKE_DEFAULT
    if (timed()) {
        std::atomic<bool> revoked = true;
        on_each_owned([&](state* s) {
            const ncclResult_t code = ncclCommRevoke(s->comm, NCCL_REVOKE_DEFAULT);
            ncclResult_t later = ncclInProgress;
            const bool accepted = code == ncclSuccess || code == ncclInProgress;
            if (!accepted || !nccl_settled(s->comm, later, timeout)) revoked = false;
        });
        if (revoked) return;
    }
#endif
    abort_all();
}

inline void nccl_family::abort_all() noexcept {
    on_each_owned([](state* s) { ncclCommAbort(std::exchange(s->comm, nullptr)); });
}

}  // namespace detail
}  // namespace zeropp
