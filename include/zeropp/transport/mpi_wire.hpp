#pragma once
/// \file
/// MPI as a wire.

#include <zeropp/core/error.hpp>
#include <zeropp/core/view.hpp>
#include <zeropp/transport/wire.hpp>

#include <mpi.h>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <exception>
#include <optional>
#include <span>
#include <string>
#include <utility>

namespace zeropp {

/// A call to MPI that failed, with MPI's text; `code()` is MPI's error code.
class mpi_error : public error {
public:
    mpi_error(const std::string& call, int code) : error(call + ": " + text(code)), code_(code) {}

    int code() const { return code_; }

private:
    static std::string text(int code) {
        char buffer[MPI_MAX_ERROR_STRING] = {};
        int length = 0;
        if (MPI_Error_string(code, buffer, &length) != MPI_SUCCESS) return "MPI error " + std::to_string(code);
        return {buffer, static_cast<std::size_t>(length)};
    }

    int code_;
};

namespace detail {

inline void require_mpi(int code, const char* call) {
    if (code != MPI_SUCCESS) throw mpi_error(call, code);
}

/// A wire over MPI's nonblocking point-to-point calls, in `Space`. Messages have at most 2^31 - 1 bytes.
template <class Space>
class mpi_wire {
    static constexpr bool on_device = std::same_as<Space, device_space>;

public:
    using space = Space;
    static constexpr const char* name = on_device ? "cuda_aware_mpi_transport" : "mpi_transport";

    struct request {
        MPI_Request native = MPI_REQUEST_NULL;
        bool receives = false;
    };

    /// Uses `comm`. An owned communicator returns errors, which become exceptions, and is freed by the destructor,
    /// unless MPI has ended or `keep` was called.
    mpi_wire(MPI_Comm comm, bool owned) : comm_(comm), owned_(owned) {
        if (owned_) require_mpi(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
        require_mpi(MPI_Comm_rank(comm_, &rank_), "MPI_Comm_rank");
        require_mpi(MPI_Comm_size(comm_, &size_), "MPI_Comm_size");
        require_mpi(MPI_Query_thread(&thread_level_), "MPI_Query_thread");
    }
    ~mpi_wire() {
        int finalized = 0;
        MPI_Finalized(&finalized);
        if (owned_ && finalized == 0) MPI_Comm_free(&comm_);
    }
    mpi_wire(mpi_wire&& other) noexcept
        : comm_(other.comm_), owned_(std::exchange(other.owned_, false)), rank_(other.rank_), size_(other.size_),
          thread_level_(other.thread_level_) {}
    mpi_wire& operator=(mpi_wire&& other) noexcept {
        std::swap(comm_, other.comm_);
        std::swap(owned_, other.owned_);
        std::swap(rank_, other.rank_);
        std::swap(size_, other.size_);
        std::swap(thread_level_, other.thread_level_);
        return *this;
    }

    /// Never frees the communicator, because MPI_Comm_free is collective.
    void keep() { owned_ = false; }

    MPI_Comm native() const { return comm_; }
    int rank() const { return rank_; }
    int size() const { return size_; }

    /// Ranks that share memory move bytes only while both are awake, and poll_until sleeps if nothing completes. So
    /// pieces of host memory are small: one completes often as long as bytes flow. A device moves its memory by itself,
    /// and a piece is as large as MPI's int counts allow.
    static constexpr std::size_t piece() { return std::size_t{1} << (on_device ? 30 : 18); }

    std::optional<mpi_wire> split(std::span<const int> members) {
        const auto self = std::ranges::find(members, rank_) - members.begin();
        MPI_Comm part = MPI_COMM_NULL;
        require_mpi(
            MPI_Comm_split(comm_, members.empty() ? MPI_UNDEFINED : members.front(), static_cast<int>(self), &part),
            "MPI_Comm_split");
        if (members.empty()) return std::nullopt;
        return mpi_wire(part, true);
    }

    void require_other_threads() const {
        if (thread_level_ == MPI_THREAD_MULTIPLE) return;
        throw precondition_error(name, "MPI initialised with MPI_THREAD_MULTIPLE for an execution on another thread",
                                 "thread level " + std::to_string(thread_level_));
    }

    void post_receive(request& r, std::byte* to, std::size_t bytes, int source, int tag) {
        r.receives = true;
        require_mpi(MPI_Irecv(to, static_cast<int>(bytes), MPI_BYTE, source, tag, comm_, &r.native), "MPI_Irecv");
    }
    void post_send(request& r, const std::byte* from, std::size_t bytes, int destination, int tag) {
        r.receives = false;
        require_mpi(MPI_Isend(from, static_cast<int>(bytes), MPI_BYTE, destination, tag, comm_, &r.native),
                    "MPI_Isend");
    }

    /// Calls MPI_Test. MPI_Wait may never yield the processor to the ranks that it waits for, and Open MPI 4.1's
    /// MPI_Waitall hangs after an error.
    wire_completion test(request& r) {
        if (!active(r)) return {.complete = true};
        MPI_Status status;
        int completed = 0;
        const int code = MPI_Test(&r.native, &completed, &status);
        if (code != MPI_SUCCESS) {
            // The only error after which the ranks can go on: every other request completes as usual.
            int error_class = MPI_SUCCESS;
            MPI_Error_class(code, &error_class);
            if (error_class != MPI_ERR_TRUNCATE) throw mpi_error("MPI_Test", code);
            r.native = MPI_REQUEST_NULL;
            return {.complete = true, .truncated = std::make_exception_ptr(mpi_error("MPI_Test", code))};
        }
        if (completed == 0) return {};
        int bytes = 0;
        if (r.receives) require_mpi(MPI_Get_count(&status, MPI_BYTE, &bytes), "MPI_Get_count");
        return {.complete = true, .bytes = static_cast<std::size_t>(bytes)};
    }

    static bool active(const request& r) { return r.native != MPI_REQUEST_NULL; }

    static void cancel(request& r) {
        if (r.receives && active(r)) MPI_Cancel(&r.native);
    }
    static void abandon(request& r) {
        if (active(r)) MPI_Request_free(&r.native);
    }

private:
    MPI_Comm comm_;
    bool owned_;
    int rank_ = 0;
    int size_ = 0;
    int thread_level_ = MPI_THREAD_SINGLE;
};

static_assert(wire<mpi_wire<host_space>>);

}  // namespace detail
}  // namespace zeropp
