#pragma once
/// \file
/// Calls to NCCL: their errors, and waiting for nonblocking ones.

#include <zeropp/core/error.hpp>
#include <zeropp/transport/deadline.hpp>
#include <zeropp/transport/poll.hpp>

#include <nccl.h>

#include <chrono>
#include <string>

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

}  // namespace zeropp
