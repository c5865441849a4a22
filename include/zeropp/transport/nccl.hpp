#pragma once
/// \file
/// Ranks with a GPU each, connected by NCCL.

#include <zeropp/core/error.hpp>
#include <zeropp/execution/cuda_stream.hpp>
#include <zeropp/transport/transport.hpp>

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace zeropp {

/// A call to NCCL that failed, with NCCL's own text; `code()` is NCCL's.
class nccl_error : public error {
public:
    nccl_error(const std::string& call, ncclResult_t code, const std::string& detail)
        : error(call + ": " + ncclGetErrorString(code) + (detail.empty() ? "" : " (" + detail + ")")), code_(code) {}

    ncclResult_t code() const { return code_; }

private:
    ncclResult_t code_;
};

/// Moves bytes between GPUs with NCCL, on the caller's stream. Never blocks on the stream's work: collectives can be
/// captured into a CUDA graph.
///
/// Errors that NCCL notices later (a dead peer, a broken link) are raised as nccl_error by the next operation or by
/// `check()`. After an error the transport aborts its communicator if it owns it, so that nothing is leaked and the
/// stream's work ends, and every later call throws the first error again.
class nccl_transport {
public:
    /// An id for `create`: made on one rank, given to all by any means (MPI_Bcast, a file, a socket).
    static ncclUniqueId unique_id() {
        ncclUniqueId id;
        require(ncclGetUniqueId(&id), "ncclGetUniqueId", nullptr);
        return id;
    }

    /// Makes a communicator of `ranks` ranks on the current device. Collective over the ranks that share `id`.
    static nccl_transport create(const ncclUniqueId& id, int ranks, int rank) {
        ncclComm_t comm = nullptr;
        require(ncclCommInitRank(&comm, ranks, id, rank), "ncclCommInitRank", nullptr);
        return nccl_transport(comm, true);
    }

    /// Uses `comm`, which must outlive the transport and stays the caller's to destroy or abort.
    static nccl_transport borrow(ncclComm_t comm) { return nccl_transport(comm, false); }

    int rank() const { return state_->rank; }
    int size() const { return state_->size; }
    ncclComm_t native() const { return state_->comm; }

    void all_gather(const cuda_stream& stream, const std::byte* send, std::byte* recv, std::size_t bytes) {
        state_->check();
        state_->settle(ncclAllGather(send, recv, bytes, ncclUint8, state_->comm, stream.native()), "ncclAllGather");
    }

    void all_to_all(const cuda_stream& stream, const std::byte* send, std::byte* recv, std::size_t bytes) {
        state_->check();
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 0)
        state_->settle(ncclAlltoAll(send, recv, bytes, ncclUint8, state_->comm, stream.native()), "ncclAlltoAll");
#else
        state_->grouped_all_to_all(stream.native(), send, recv, bytes);
#endif
    }

    /// Blocks the caller.
    nccl_transport split(std::span<const int> members) {
        const auto self = std::find(members.begin(), members.end(), rank());
        if (self == members.end())
            throw precondition_error("split", "a list with rank " + std::to_string(rank()), "one without");
        const int place = static_cast<int>(self - members.begin());
        state_->check();
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 18, 0)
        ncclComm_t child = nullptr;
        state_->settle(ncclCommSplit(state_->comm, members.front(), place, &child, nullptr), "ncclCommSplit");
        return nccl_transport(child, true);
#else
        return create(state_->share_id(members.front(), place), static_cast<int>(members.size()), place);
#endif
    }

    /// Throws nccl_error if NCCL has noticed an error since. Does not block.
    void check() { state_->check(); }

private:
    struct state {
        ncclComm_t comm;
        bool owned;
        int rank = 0;
        int size = 0;
        ncclResult_t failed_code = ncclSuccess;
        std::string failed_call;
        std::string failed_detail;

        state(ncclComm_t c, bool own) : comm(c), owned(own) {
            // Not `settle`: what fails here has no destructor yet to abort the communicator.
            const char* call = "ncclCommUserRank";
            ncclResult_t code = ncclCommUserRank(comm, &rank);
            if (code == ncclSuccess) {
                call = "ncclCommCount";
                code = ncclCommCount(comm, &size);
            }
            if (code == ncclSuccess) return;
            const std::string detail = last_error(comm);
            if (owned) ncclCommAbort(comm);
            throw nccl_error(call, code, detail);
        }

        ~state() {
            if (owned && comm != nullptr) ncclCommDestroy(comm);
        }

        state(const state&) = delete;
        state& operator=(const state&) = delete;

        /// Waits until a call has been accepted, where the communicator is a nonblocking one, and throws if it failed.
        void settle(ncclResult_t code, const char* call) {
            while (code == ncclInProgress) {
                ncclResult_t progress = ncclInProgress;
                const ncclResult_t asked = ncclCommGetAsyncError(comm, &progress);
                code = asked != ncclSuccess ? asked : progress;
            }
            if (code != ncclSuccess) fail(call, code);
        }

        void check() {
            if (failed_code != ncclSuccess) throw nccl_error(failed_call, failed_code, failed_detail);
            ncclResult_t noticed = ncclSuccess;
            const ncclResult_t asked = ncclCommGetAsyncError(comm, &noticed);
            if (asked != ncclSuccess) noticed = asked;
            if (noticed != ncclSuccess && noticed != ncclInProgress) fail("an earlier NCCL operation", noticed);
        }

        [[noreturn]] void fail(const char* call, ncclResult_t code) {
            failed_code = code;
            failed_call = call;
            failed_detail = last_error(comm);
            if (owned) {
                ncclCommAbort(comm);
                comm = nullptr;
            }
            throw nccl_error(failed_call, failed_code, failed_detail);
        }

#if NCCL_VERSION_CODE < NCCL_VERSION(2, 28, 0)
        void grouped_all_to_all(cudaStream_t stream, const std::byte* send, std::byte* recv, std::size_t bytes) {
            settle(ncclGroupStart(), "ncclGroupStart");
            ncclResult_t code = ncclSuccess;
            const char* call = nullptr;
            const auto note = [&](ncclResult_t result, const char* name) {
                const bool failed_before = code != ncclSuccess && code != ncclInProgress;
                if (failed_before || result == ncclSuccess) return;
                code = result;
                call = name;
            };
            for (int peer = 0; peer != size; ++peer) {
                const std::size_t at = static_cast<std::size_t>(peer) * bytes;
                note(ncclSend(send + at, bytes, ncclUint8, peer, comm, stream), "ncclSend");
                note(ncclRecv(recv + at, bytes, ncclUint8, peer, comm, stream), "ncclRecv");
            }
            // After a failure too: a group that stays open holds back all that this thread asks of NCCL later.
            note(ncclGroupEnd(), "ncclGroupEnd");
            settle(code, call);
        }
#endif

#if NCCL_VERSION_CODE < NCCL_VERSION(2, 18, 0)
        struct destroy_stream {
            void operator()(cudaStream_t stream) const { cudaStreamDestroy(stream); }
        };

        static cudaStream_t new_stream() {
            cudaStream_t stream = nullptr;
            detail::require_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
                                 "cudaStreamCreateWithFlags");
            return stream;
        }

        /// The id that the first of a list of members has made, on all of them.
        ncclUniqueId share_id(int first, int place) {
            std::vector<ncclUniqueId> ids(static_cast<std::size_t>(size));
            ncclUniqueId& mine = ids[static_cast<std::size_t>(rank)];
            if (place == 0) settle(ncclGetUniqueId(&mine), "ncclGetUniqueId");
            const std::size_t bytes = sizeof(ncclUniqueId);
            workspace<device_space> memory(ids.size() * bytes);
            std::byte* const all = memory.view().data();
            std::byte* const own = all + static_cast<std::size_t>(rank) * bytes;
            // Of its own: the null stream waits for every other one.
            const std::unique_ptr<std::remove_pointer_t<cudaStream_t>, destroy_stream> stream(new_stream());
            detail::require_cuda(cudaMemcpyAsync(own, &mine, bytes, cudaMemcpyHostToDevice, stream.get()),
                                 "cudaMemcpyAsync");
            settle(ncclAllGather(own, all, bytes, ncclUint8, comm, stream.get()), "ncclAllGather");
            detail::require_cuda(
                cudaMemcpyAsync(ids.data(), all, ids.size() * bytes, cudaMemcpyDeviceToHost, stream.get()),
                "cudaMemcpyAsync");
            detail::require_cuda(cudaStreamSynchronize(stream.get()), "cudaStreamSynchronize");
            return ids[static_cast<std::size_t>(first)];
        }
#endif
    };

    static std::string last_error(ncclComm_t comm) {
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 13, 0)
        const char* text = ncclGetLastError(comm);
        return text ? text : "";
#else
        return {};
#endif
    }

    static void require(ncclResult_t code, const char* call, ncclComm_t comm) {
        if (code != ncclSuccess) throw nccl_error(call, code, last_error(comm));
    }

    nccl_transport(ncclComm_t comm, bool owned) : state_(std::make_unique<state>(comm, owned)) {}

    std::unique_ptr<state> state_;
};

static_assert(transport_on<nccl_transport, cuda_stream>);

}  // namespace zeropp
