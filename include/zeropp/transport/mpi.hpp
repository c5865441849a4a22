#pragma once
/// \file
/// Ranks that are MPI processes.

#include <zeropp/core/error.hpp>
#include <zeropp/core/view.hpp>
#include <zeropp/execution/execution.hpp>
#include <zeropp/execution/host.hpp>
#include <zeropp/topology/two_level.hpp>
#include <zeropp/transport/deadline.hpp>
#include <zeropp/transport/mpi_wire.hpp>
#include <zeropp/transport/peer_exchange.hpp>
#include <zeropp/transport/poll.hpp>
#include <zeropp/transport/transport.hpp>

#include <mpi.h>
#if __has_include(<mpi-ext.h>)
#include <mpi-ext.h>
#endif

#include <algorithm>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace zeropp {

namespace detail {
/// True if MPI says that it cannot work on device memory. Only Open MPI, its derivatives and MPICH since 4.0 can be
/// asked.
inline bool mpi_refuses_device_memory() {
#if defined(MPIX_CUDA_AWARE_SUPPORT) || (defined(MPICH_NUMVERSION) && MPICH_NUMVERSION >= 40000300)
    return MPIX_Query_cuda_support() == 0;
#else
    return false;
#endif
}
}  // namespace detail

/// Moves bytes in `Space` with MPI's nonblocking point-to-point calls. All peers are served at once; messages of any
/// size travel in pieces. A rank that waits long sleeps between calls to MPI, at most 250 us, so ranks may share cores.
/// Must be destroyed before MPI_Finalize.
///
/// If ranks disagree about a size, ranks that receive throw if both sizes take the same number of pieces (256 KiB; in
/// device memory 1 GiB). Otherwise they wait for each other, unless the transport has a timeout or is `checked`. MPICH
/// passes errors of requests to the error handler of MPI_COMM_WORLD, newer versions to that of MPI_COMM_SELF. Unless it
/// is MPI_ERRORS_RETURN, MPICH then ends the program.
///
/// With a timeout (on all ranks or on none), each operation ends with an acknowledgement from each peer, see
/// peer_exchange. A rank that gives up tells its peers, which throw its timeout_error, or peer_error for another cause.
///
/// Every error of an operation is final, except a message of the wrong length (MPI_ERR_TRUNCATE, or too short) that no
/// acknowledgement explains. After a final error, all transports split from one another throw that error again and
/// never free their communicators, because MPI_Comm_free is collective. Destruction does not block. MPI_Finalize may;
/// then MPI_Abort ends the program.
///
/// Memory after a final error: MPI may still read `send`; it may be changed but not freed. Receives are cancelled, but
/// MPI may still write a piece that had begun to arrive: neither use nor free `recv` before the process ends.
///
/// Host memory (`mpi_transport`): `host{}` works with any thread level. On every other execution, operations throw
/// precondition_error unless MPI was initialised with MPI_THREAD_MULTIPLE, because a `host_queue` calls MPI from its
/// own thread.
///
/// Device memory (`cuda_aware_mpi_transport`): operations wait for the stream, block the caller until the bytes have
/// arrived, and cannot be captured. Making a transport throws precondition_error if MPI says that it has no CUDA
/// support; `staged<mpi_transport>` works with any MPI.
template <class Space>
class basic_mpi_transport {
public:
    /// Uses `comm` itself, which must outlive the transport. No other traffic may use it meanwhile. Its error handler
    /// stays unchanged.
    static basic_mpi_transport borrow(MPI_Comm comm, transport_options options = {}) {
        require_support();
        detail::require_timeout(name, options);
        return basic_mpi_transport(comm, false, options);
    }

    /// Uses a duplicate of `comm`, on which errors become exceptions. Collective over `comm`, within the timeout.
    static basic_mpi_transport duplicate(MPI_Comm comm, transport_options options = {}) {
        require_support();
        detail::require_timeout(name, options);
        return basic_mpi_transport(copy_of(comm, options), true, options);
    }

    int rank() const { return state_->wire.rank(); }
    int size() const { return state_->wire.size(); }
    /// The transport's communicator.
    MPI_Comm native() const { return state_->wire.native(); }

    /// Notes the collective's name for errors, see begin_collective.
    void begin(const collective_call& call, const std::string& problem) {
        state_->peers.begin(call.primitive);
        detail::require_no_problem(call, problem);
    }

    template <execution E>
    requires std::same_as<typename E::space, Space>
    void all_gather(const E& exec, const std::byte* send, std::byte* recv, std::size_t bytes) {
        exchange(exec, send, recv, state_->peers.next(detail::operation::all_gather, bytes));
    }

    template <execution E>
    requires std::same_as<typename E::space, Space>
    void all_to_all(const E& exec, const std::byte* send, std::byte* recv, std::size_t bytes) {
        exchange(exec, send, recv, state_->peers.next(detail::operation::all_to_all, bytes));
    }

    template <execution E>
    requires std::same_as<typename E::space, Space>
    void broadcast(const E& exec, const std::byte* send, std::byte* recv, std::size_t bytes, int roots) {
        detail::require_roots(name, roots, size());
        exchange(exec, send, recv, state_->peers.next(detail::operation::broadcast, bytes, roots));
    }

    /// With a timeout the ranks first meet within it. MPI_Comm_split has no deadline: a rank that dies after the
    /// meeting leaves the others waiting. Requires that no operation is in flight on a queue.
    basic_mpi_transport split(std::span<const int> members) {
        const auto self = std::find(members.begin(), members.end(), rank());
        const bool listed = self != members.end();
        const auto other = std::ranges::find_if(members, [&](int m) { return m < 0 || m >= size(); });
        const bool in_range = other == members.end();
        state_->peers.barrier(detail::operation::split);
        MPI_Comm comm = MPI_COMM_NULL;
        // A rank with a wrong list takes part before it throws, so that the others do not wait for it.
        detail::require_mpi(MPI_Comm_split(state_->wire.native(), listed && in_range ? members.front() : MPI_UNDEFINED,
                                           static_cast<int>(self - members.begin()), &comm),
                            "MPI_Comm_split");
        if (!listed) {
            throw precondition_error(name, "a split list with rank " + std::to_string(rank()), "one without");
        }
        if (!in_range) {
            throw precondition_error(name, "a split list of ranks below " + std::to_string(size()),
                                     "one with " + std::to_string(*other));
        }
        basic_mpi_transport child(std::make_unique<state>(comm, *state_, members));
        if (static_cast<std::size_t>(child.size()) != members.size()) {
            throw precondition_error(name,
                                     "the same split list on each of its " + std::to_string(members.size()) + " ranks",
                                     "lists of " + std::to_string(child.size()) + " ranks that begin alike");
        }
        return child;
    }

private:
    static constexpr bool on_device = std::same_as<Space, device_space>;
    static constexpr const char* name = on_device ? "cuda_aware_mpi_transport" : "mpi_transport";

    struct state {
        detail::mpi_wire wire;
        peer_exchange<detail::mpi_wire> peers;
        int thread_level = MPI_THREAD_SINGLE;

        state(MPI_Comm comm, bool owned, transport_options options)
            : wire(comm, owned), peers(wire, name, piece, options) {
            query_thread();
        }

        /// State of a split of `members` from `parent`; `comm` is the split's communicator.
        state(MPI_Comm comm, const state& parent, std::span<const int> members)
            : wire(comm, true), peers(wire, parent.peers, members) {
            query_thread();
        }

        ~state() {
            if (peers.failed()) wire.keep();
        }
        state(const state&) = delete;
        state& operator=(const state&) = delete;

        void query_thread() { detail::require_mpi(MPI_Query_thread(&thread_level), "MPI_Query_thread"); }

        // Ranks that share memory move bytes only while both are awake, and poll_until sleeps if nothing completes. So
        // pieces of host memory are small: one completes often as long as bytes flow. A device moves its memory by
        // itself, and a piece is as large as MPI's int counts allow.
        static constexpr std::size_t piece = std::size_t{1} << (on_device ? 30 : 18);
    };

    basic_mpi_transport(MPI_Comm comm, bool owned, transport_options options)
        : basic_mpi_transport(std::make_unique<state>(comm, owned, options)) {}

    explicit basic_mpi_transport(std::unique_ptr<state> s) : state_(std::move(s)) {}

    static MPI_Comm copy_of(MPI_Comm comm, const transport_options& options) {
        // Not every MPI has MPI_Comm_idup: SimGrid's does not.
        if (options.timeout == std::chrono::milliseconds::zero()) {
            MPI_Comm copy = MPI_COMM_NULL;
            detail::require_mpi(MPI_Comm_dup(comm, &copy), "MPI_Comm_dup");
            return copy;
        }
        // On the heap, because MPI writes the communicator when all ranks have come, even after the deadline.
        auto copy = std::make_unique<MPI_Comm>(MPI_COMM_NULL);
        MPI_Request request = MPI_REQUEST_NULL;
        detail::require_mpi(MPI_Comm_idup(comm, copy.get(), &request), "MPI_Comm_idup");
        int code = MPI_SUCCESS;
        const auto done = [&] {
            int completed = 0;
            code = MPI_Test(&request, &completed, MPI_STATUS_IGNORE);
            return completed != 0 || code != MPI_SUCCESS;
        };
        if (!detail::poll_until(done, detail::deadline_after(options.timeout))) {
            static_cast<void>(copy.release());
            throw timeout_error(std::string(name) + ": timeout of " + std::to_string(options.timeout.count()) +
                                " ms in MPI_Comm_idup: not heard from all ranks");
        }
        detail::require_mpi(code, "MPI_Comm_idup");
        return *copy;
    }

    static void require_support() {
        if (on_device && detail::mpi_refuses_device_memory()) {
            throw precondition_error(name, "an MPI with support for CUDA (staged<mpi_transport> works with any)",
                                     "one that says it has none");
        }
    }

    /// Host executions exchange in their turn. A stream is waited for first, because MPI knows nothing of streams.
    template <class E>
    void exchange(const E& exec, const std::byte* send, std::byte* recv, const detail::operation_in_call& what) const {
        auto& peers = state_->peers;
        if constexpr (on_device) {
            exec.wait();
            peers.exchange(exec, what, send, recv);
        } else {
            require_threads<E>();
            exec.enqueue([&peers, what, send, recv] { peers.exchange(host{}, what, send, recv); });
        }
    }

    template <class E>
    void require_threads() const {
        if constexpr (!std::same_as<E, host>) {
            if (state_->thread_level != MPI_THREAD_MULTIPLE) {
                throw precondition_error(name,
                                         "MPI initialised with MPI_THREAD_MULTIPLE for an execution on another thread",
                                         "thread level " + std::to_string(state_->thread_level));
            }
        }
    }

    template <class S>
    friend two_level shared_memory_nodes(const basic_mpi_transport<S>& transport);

    std::unique_ptr<state> state_;
};

/// MPI processes that exchange host memory.
using mpi_transport = basic_mpi_transport<host_space>;
/// MPI processes that exchange device memory. Requires an MPI with CUDA support.
using cuda_aware_mpi_transport = basic_mpi_transport<device_space>;

/// Nodes of `transport`'s ranks: ranks that share memory, as MPI sees it, are one node. Collective; with a timeout the
/// ranks first meet within it. Throws precondition_error with each node's number of ranks unless the numbers are equal.
template <class Space>
two_level shared_memory_nodes(const basic_mpi_transport<Space>& transport) {
    transport.state_->peers.barrier(detail::operation::split);
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
