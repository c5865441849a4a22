#pragma once
/// \file
/// Ranks that are MPI processes: the wire of MPI messages, and the transport over it.

#include <zeropp/core/error.hpp>
#include <zeropp/core/view.hpp>
#include <zeropp/topology/two_level.hpp>
#include <zeropp/transport/deadline.hpp>
#include <zeropp/transport/wire.hpp>
#include <zeropp/transport/wire_transport.hpp>

#include <mpi.h>
#if __has_include(<mpi-ext.h>)
#include <mpi-ext.h>
#endif

#include <algorithm>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace zeropp {

/// Error of a call to MPI, with MPI's text. `code()` is MPI's error code.
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

/// Throws unless `code`, the result of the MPI function `call`, is MPI_SUCCESS. Throws peer_error if a process has
/// failed or a rank has called `shrink`, else mpi_error.
inline void require_mpi(int code, const char* call) {
    if (code == MPI_SUCCESS) return;
#ifdef OMPI_HAVE_MPI_EXT_FTMPI
    int error_class = MPI_SUCCESS;
    MPI_Error_class(code, &error_class);
    const bool lost = error_class == MPIX_ERR_PROC_FAILED || error_class == MPIX_ERR_REVOKED;
    if (lost) throw peer_error(mpi_error(call, code).what());
#endif
    throw mpi_error(call, code);
}

/// Runs `start(value, request)`, which begins the nonblocking MPI function `call`, and waits until `request` is
/// complete. Returns the value that MPI has written, and MPI's code. Throws timeout_error after `timeout`.
template <class Value, class Start>
std::pair<Value, int> mpi_result(const char* where, const char* call, std::chrono::milliseconds timeout, Value value,
                                 Start start) {
    // On the heap, because MPI may still write the value after a timeout, when this function has thrown.
    auto written = std::make_unique<Value>(value);
    MPI_Request request = MPI_REQUEST_NULL;
    require_mpi(start(written.get(), &request), call);
    int code = MPI_SUCCESS;
    const auto done = [&] {
        int completed = 0;
        code = MPI_Test(&request, &completed, MPI_STATUS_IGNORE);
        return completed != 0 || code != MPI_SUCCESS;
    };
    if (!poll_until(done, deadline_after(timeout))) {
        static_cast<void>(written.release());
        throw timed_out(where, timeout, call, "not heard from all ranks");
    }
    return {*written, code};
}

/// An MPI communicator, and its family: all communicators that were split from one another. An owned communicator
/// returns errors, which become exceptions. The destructor frees an owned communicator, unless MPI_Finalize has run.
struct mpi_communicator {
    struct family {
        std::mutex mutex;
        std::vector<MPI_Comm> members;
    };

    MPI_Comm native;
    bool owned;
    std::shared_ptr<family> relatives;

    mpi_communicator(MPI_Comm comm, bool own, std::shared_ptr<family> f)
        : native(comm), owned(own), relatives(std::move(f)) {
        if (owned) require_mpi(MPI_Comm_set_errhandler(native, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
        const std::lock_guard lock(relatives->mutex);
        relatives->members.push_back(native);
    }
    ~mpi_communicator() {
        {
            const std::lock_guard lock(relatives->mutex);
            std::erase(relatives->members, native);
        }
        int finalized = 0;
        MPI_Finalized(&finalized);
        if (owned && finalized == 0) MPI_Comm_free(&native);
    }
    mpi_communicator(const mpi_communicator&) = delete;
    mpi_communicator& operator=(const mpi_communicator&) = delete;
};

/// A wire (network of messages) over MPI's nonblocking point-to-point calls, for memory in `Space`. Messages have at
/// most 2^31 - 1 bytes.
template <class Space>
class mpi_wire {
    static constexpr bool on_device = std::same_as<Space, device_space>;
    using family = mpi_communicator::family;

public:
    using space = Space;
    static constexpr const char* name = on_device ? "cuda_aware_mpi_transport" : "mpi_transport";

    struct request {
        MPI_Request native = MPI_REQUEST_NULL;
        bool receives = false;
    };

    mpi_wire(MPI_Comm comm, bool owned, std::shared_ptr<family> relatives = std::make_shared<family>())
        : comm_(std::make_unique<mpi_communicator>(comm, owned, std::move(relatives))) {
        require_mpi(MPI_Comm_rank(comm, &rank_), "MPI_Comm_rank");
        require_mpi(MPI_Comm_size(comm, &size_), "MPI_Comm_size");
    }

    /// Keeps the destructor from freeing the communicator: MPI_Comm_free is collective, and ranks may be dead.
    void keep() { comm_->owned = false; }

    MPI_Comm native() const { return comm_->native; }
    int rank() const { return rank_; }
    int size() const { return size_; }

    /// Number of bytes of the pieces in which long messages travel: 256 KiB of host memory, 1 GiB of device memory.
    /// Ranks that share memory move bytes only while sender and receiver are awake, and poll_until sleeps if nothing
    /// completes. So pieces of host memory are small, and one completes often. A device moves its memory by itself. So
    /// pieces of device memory are the largest power of two that MPI's int counts allow.
    static constexpr std::size_t piece() { return std::size_t{1} << (on_device ? 30 : 18); }

    std::optional<mpi_wire> split(std::span<const int> members) {
        const auto self = std::ranges::find(members, rank_) - members.begin();
        MPI_Comm part = MPI_COMM_NULL;
        const int color = members.empty() ? MPI_UNDEFINED : members.front();
        require_mpi(MPI_Comm_split(native(), color, static_cast<int>(self), &part), "MPI_Comm_split");
        if (members.empty()) return std::nullopt;
        return mpi_wire(part, true, comm_->relatives);
    }

    /// Makes calls on all communicators of the family fail, on all ranks, see shrinkable_wire. Throws
    /// precondition_error without user-level failure mitigation (ULFM) of MPI.
    void revoke() {
        require_fault_tolerance();
#ifdef OMPI_HAVE_MPI_EXT_FTMPI
        const std::lock_guard lock(comm_->relatives->mutex);
        for (const MPI_Comm comm : comm_->relatives->members) require_mpi(MPIX_Comm_revoke(comm), "MPIX_Comm_revoke");
#endif
    }

    /// Wire of the survivors, see shrinkable_wire. Leaves out `excluded` ranks and processes that MPI knows to have
    /// ended. Waits for all other processes, also for stopped ones.
    shrunk<mpi_wire> shrink([[maybe_unused]] std::span<const int> excluded,
                            [[maybe_unused]] std::chrono::milliseconds timeout) {
        require_fault_tolerance();
        MPI_Comm left = MPI_COMM_NULL;
        enum { dead, goes_on, left_behind };
        std::vector<int> fate(static_cast<std::size_t>(size_));  // [r]: fate of rank r
        int& own = fate[static_cast<std::size_t>(rank_)];
#ifdef OMPI_HAVE_MPI_EXT_FTMPI
        for (bool agreed = false; !agreed;) {  // `agreed` stays false if another process fails meanwhile
            // MPIX_Comm_shrink has no deadline, so the ranks first meet in `agree`, which has one.
            agree(native(), true, timeout);
            MPI_Comm living = MPI_COMM_NULL;
            require_mpi(MPIX_Comm_shrink(native(), &living), "MPIX_Comm_shrink");
            require_mpi(MPI_Comm_set_errhandler(living, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
            std::ranges::fill(fate, dead);
            own = goes_on;
            for (const int e : excluded) fate[static_cast<std::size_t>(e)] = left_behind;
            int code = MPI_Allreduce(MPI_IN_PLACE, fate.data(), size_, MPI_INT, MPI_MAX, living);
            if (code == MPI_SUCCESS) code = MPI_Comm_split(living, own, 0, &left);
            agreed = agree(living, code == MPI_SUCCESS, timeout);
        }
#endif
        std::vector<int> survivors;
        for (int r = 0; r != size_; ++r) {
            if (fate[static_cast<std::size_t>(r)] == goes_on) survivors.push_back(r);
        }
        if (own != goes_on) throw left_out(name, rank_, survivors);
        return {mpi_wire(left, true), std::move(survivors)};
    }

    void require_other_threads() const {
        int level = MPI_THREAD_SINGLE;
        require_mpi(MPI_Query_thread(&level), "MPI_Query_thread");
        if (level == MPI_THREAD_MULTIPLE) return;
        throw precondition_error(name, "MPI initialised with MPI_THREAD_MULTIPLE for an execution on another thread",
                                 "thread level " + std::to_string(level));
    }

    void post_receive(request& r, std::byte* to, std::size_t bytes, int source, int tag) {
        r.receives = true;
        require_mpi(MPI_Irecv(to, static_cast<int>(bytes), MPI_BYTE, source, tag, native(), &r.native), "MPI_Irecv");
    }
    void post_send(request& r, const std::byte* from, std::size_t bytes, int destination, int tag) {
        r.receives = false;
        require_mpi(MPI_Isend(from, static_cast<int>(bytes), MPI_BYTE, destination, tag, native(), &r.native),
                    "MPI_Isend");
    }

    /// State of a message, without blocking. Calls MPI_Test, because MPI_Wait may never yield the processor to the
    /// ranks that it waits for. MPI_Waitall of Open MPI 4.1 hangs after an error.
    wire_completion test(request& r) {
        if (!active(r)) return {.complete = true};
        MPI_Status status;
        int completed = 0;
        const int code = MPI_Test(&r.native, &completed, &status);
        if (code != MPI_SUCCESS) {
            // After MPI_ERR_TRUNCATE alone, the ranks can go on: every other request completes as usual.
            int error_class = MPI_SUCCESS;
            MPI_Error_class(code, &error_class);
            if (error_class != MPI_ERR_TRUNCATE) require_mpi(code, "MPI_Test");
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
#ifndef OMPI_HAVE_MPI_EXT_FTMPI  // Open MPI 5 ends the process if a freed request fails later
        if (active(r)) MPI_Request_free(&r.native);
#endif
        r.native = MPI_REQUEST_NULL;
    }

private:
    static void require_fault_tolerance() {
#ifdef OMPI_HAVE_MPI_EXT_FTMPI
        void* enabled = nullptr;
        int known = 0;
        require_mpi(MPI_Comm_get_attr(MPI_COMM_WORLD, MPIX_FT, &enabled, &known), "MPI_Comm_get_attr");
        if (known != 0 && *static_cast<const int*>(enabled) != 0) return;
        throw precondition_error(name, "mpirun --with-ft ulfm, to shrink", "a run without it");
#else
        throw precondition_error(name, "an MPI with user-level failure mitigation, as Open MPI 5, to shrink",
                                 "one without");
#endif
    }

#ifdef OMPI_HAVE_MPI_EXT_FTMPI
    /// True if `mine` is true on all living ranks of `comm`. All these ranks get an equal result. Throws timeout_error
    /// after `timeout`.
    static bool agree(MPI_Comm comm, bool mine, std::chrono::milliseconds timeout) {
        const auto [all, code] =
            mpi_result(name, "MPIX_Comm_iagree", timeout, mine ? 1 : 0,
                       [&](int* flag, MPI_Request* request) { return MPIX_Comm_iagree(comm, flag, request); });
        int error_class = MPI_SUCCESS;
        MPI_Error_class(code, &error_class);
        if (error_class != MPIX_ERR_PROC_FAILED) require_mpi(code, "MPIX_Comm_iagree");
        return all != 0;
    }
#endif

    std::unique_ptr<mpi_communicator> comm_;
    int rank_ = 0;
    int size_ = 0;
};

}  // namespace detail

/// A transport of memory in `Space` between MPI processes, by nonblocking point-to-point calls. wire_transport
/// describes timeouts and failure. A rank that waits long sleeps up to 250 us between calls to MPI, because ranks may
/// share cores. Must be destroyed before MPI_Finalize.
///
/// Sizes    if ranks give different sizes, receivers throw if the sizes have equally many pieces (of 256 KiB; in device
///          memory of 1 GiB). Otherwise ranks wait for each other, unless there is a timeout, or `checked`
/// Errors   MPICH passes a request's error to the error handler of MPI_COMM_WORLD, newer MPICH to the handler of
///          MPI_COMM_SELF. Unless that handler is MPI_ERRORS_RETURN, MPICH then ends the program
/// Failure  afterwards, communicators are never freed, because MPI_Comm_free is collective. MPI_Finalize may block;
///          MPI_Abort ends the program. Until the program ends, MPI may read `send`, and write a piece that had begun
///          to arrive in `recv`. Do not free `send`; neither use nor free `recv`
/// Shrink   needs user-level failure mitigation (ULFM): Open MPI 5 and `mpirun --with-ft ulfm`. Operations then throw
///          peer_error when MPI notices a dead process. `shrink` waits for all living processes, within the timeout
/// Host     (`mpi_transport`) operations on a `host_queue` throw precondition_error unless MPI was initialised with
///          MPI_THREAD_MULTIPLE. `host{}` and `host_threads` work with any thread level
/// Device   (`cuda_aware_mpi_transport`) making a transport throws precondition_error if MPI says that it has no CUDA
///          support. `staged<mpi_transport>` works with any MPI
template <class Space>
class basic_mpi_transport : public wire_transport<detail::mpi_wire<Space>> {
    using wire_type = detail::mpi_wire<Space>;
    using base = wire_transport<wire_type>;

public:
    /// Uses `comm` itself and its error handler. `comm` must outlive the transport, and carry no other traffic.
    static basic_mpi_transport borrow(MPI_Comm comm, transport_options options = {}) {
        require_support();
        return basic_mpi_transport(base(wire_type(comm, false), options));
    }

    /// Uses a duplicate of `comm`, on which errors become exceptions. Collective over `comm`, within the timeout.
    static basic_mpi_transport duplicate(MPI_Comm comm, transport_options options = {}) {
        require_support();
        detail::require_timeout(wire_type::name, options);
        return basic_mpi_transport(base(wire_type(copy_of(comm, options), true), options));
    }

    /// The transport's MPI communicator.
    MPI_Comm native() const { return this->network().native(); }

    basic_mpi_transport split(std::span<const int> members) { return basic_mpi_transport(base::split(members)); }

    shrunk<basic_mpi_transport> shrink(std::span<const int> excluded = {}) {
        auto [next, survivors] = base::shrink(excluded);
        return {basic_mpi_transport(std::move(next)), std::move(survivors)};
    }

private:
    explicit basic_mpi_transport(base transport) : base(std::move(transport)) {}

    static MPI_Comm copy_of(MPI_Comm comm, const transport_options& options) {
        // Without a timeout, calls MPI_Comm_dup, because SimGrid's MPI has no MPI_Comm_idup.
        if (options.timeout == std::chrono::milliseconds::zero()) {
            MPI_Comm copy = MPI_COMM_NULL;
            detail::require_mpi(MPI_Comm_dup(comm, &copy), "MPI_Comm_dup");
            return copy;
        }
        const auto [copy, code] = detail::mpi_result(
            wire_type::name, "MPI_Comm_idup", options.timeout, MPI_COMM_NULL,
            [&](MPI_Comm* made, MPI_Request* request) { return MPI_Comm_idup(comm, made, request); });
        detail::require_mpi(code, "MPI_Comm_idup");
        return copy;
    }

    static void require_support() {
        // Only Open MPI, its derivatives and MPICH since 4.0 can be asked for CUDA support.
#if defined(MPIX_CUDA_AWARE_SUPPORT) || (defined(MPICH_NUMVERSION) && MPICH_NUMVERSION >= 40000300)
        if (std::same_as<Space, device_space> && MPIX_Query_cuda_support() == 0) {
            throw precondition_error(wire_type::name,
                                     "an MPI with support for CUDA (staged<mpi_transport> works with any)",
                                     "one that says it has none");
        }
#endif
    }

    template <class S>
    friend two_level shared_memory_nodes(const basic_mpi_transport<S>& transport);
};

/// A transport of host memory between MPI processes.
using mpi_transport = basic_mpi_transport<host_space>;
/// A transport of device memory between MPI processes. Requires an MPI with CUDA support.
using cuda_aware_mpi_transport = basic_mpi_transport<device_space>;

/// Topology of `transport`'s ranks: ranks that share memory, as MPI sees it, are one node. All ranks must call this. If
/// the transport has a timeout, the ranks first meet within that time; the MPI calls that follow have no deadline.
template <class Space>
two_level shared_memory_nodes(const basic_mpi_transport<Space>& transport) {
    transport.meet();
    MPI_Comm node = MPI_COMM_NULL;
    detail::require_mpi(
        MPI_Comm_split_type(transport.native(), MPI_COMM_TYPE_SHARED, transport.rank(), MPI_INFO_NULL, &node),
        "MPI_Comm_split_type");
    int lowest_rank = transport.rank();
    std::vector<int> node_of_rank(static_cast<std::size_t>(transport.size()));
    const int named = MPI_Allreduce(MPI_IN_PLACE, &lowest_rank, 1, MPI_INT, MPI_MIN, node);
    MPI_Comm_free(&node);
    detail::require_mpi(named, "MPI_Allreduce");
    detail::require_mpi(MPI_Allgather(&lowest_rank, 1, MPI_INT, node_of_rank.data(), 1, MPI_INT, transport.native()),
                        "MPI_Allgather");
    return two_level(std::span<const int>(node_of_rank));
}

}  // namespace zeropp
