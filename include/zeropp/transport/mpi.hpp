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
/// Whether MPI says that it cannot work on device memory. Open MPI and its relatives announce the question, MPICH has
/// it since 4.0; others cannot be asked.
inline bool mpi_refuses_device_memory() {
#if defined(MPIX_CUDA_AWARE_SUPPORT) || (defined(MPICH_NUMVERSION) && MPICH_NUMVERSION >= 40000300)
    return MPIX_Query_cuda_support() == 0;
#else
    return false;
#endif
}
}  // namespace detail

/// Moves bytes in `Space` with MPI's nonblocking point-to-point calls: every peer is served at once, and messages
/// travel in pieces, of any size in all. A rank that waits long sleeps between questions to MPI, at most 250 us at a
/// time, so that ranks may share cores. Ranks that disagree about a size get an error where that is a matter of less
/// than a piece, 256 KiB, and wait for each other else, unless the transport has a timeout or is `checked`; in a
/// broadcast only those that receive. (MPICH asks
/// the error handler of MPI_COMM_WORLD, or in newer versions of MPI_COMM_SELF, about the errors of requests: unless
/// that is MPI_ERRORS_RETURN, it ends the program there.) The transport must be destroyed before MPI_Finalize.
///
/// With a timeout (all ranks have one, or none has), an operation ends with an acknowledgement from each peer, as
/// peer_exchange says, and a rank that gives up tells its peers, which get the same timeout_error, or for another cause
/// peer_error.
///
/// After an error in an operation with a timeout, or an error of MPI's other than MPI_ERR_TRUNCATE without one, this
/// transport and all that are split from it or from what it was split from throw that first error again, and never free
/// their communicators: MPI_Comm_free is collective. Destruction does not block; MPI_Finalize may, and MPI_Abort is the
/// way to end then.
///
/// Memory after such an error: MPI may still read `send`, which may be changed and must not be given back; receives are
/// cancelled, but where the first bytes of a piece had come, MPI may still write to `recv`, which must neither be used
/// nor given back until the process ends.
///
/// In host memory (`mpi_transport`), on `host{}` any thread level will do. On a `host_queue`, which calls MPI from its
/// own thread, MPI must have been initialised with MPI_THREAD_MULTIPLE; otherwise operations throw precondition_error.
///
/// In device memory (`cuda_aware_mpi_transport`), operations wait for the stream, block the caller until the bytes have
/// crossed, and cannot be captured. Requires an MPI built with support for CUDA: making a transport throws
/// precondition_error where MPI says that it has none; `staged<mpi_transport>` works with any MPI.
template <class Space>
class basic_mpi_transport {
public:
    /// Uses `comm` itself, which must outlive the transport; no other traffic may use it meanwhile. Its error handler
    /// stays as it is.
    static basic_mpi_transport borrow(MPI_Comm comm, transport_options options = {}) {
        require_support();
        detail::require_timeout(name, options);
        return basic_mpi_transport(comm, false, options);
    }

    /// Uses a duplicate of `comm`, which errors leave as exceptions. Collective over `comm`, within the timeout.
    static basic_mpi_transport duplicate(MPI_Comm comm, transport_options options = {}) {
        require_support();
        detail::require_timeout(name, options);
        return basic_mpi_transport(copy_of(comm, options), true, options);
    }

    int rank() const { return state_->wire.rank(); }
    int size() const { return state_->wire.size(); }
    /// The communicator itself.
    MPI_Comm native() const { return state_->wire.native(); }

    /// So that errors name the collective. See begin_collective.
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

    /// Where there is a timeout, the ranks meet within it, before MPI_Comm_split, which MPI cannot be asked to end: a
    /// rank that dies between the two leaves the others waiting. No operation may be in flight on a queue then.
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

        /// A split of `members` from `parent`, whose communicator is `comm`.
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

        // A wait that sees no end for a while sleeps; ranks that share memory move bytes only while both are awake, so
        // host memory travels in pieces so small that something ends as long as bytes flow. A device moves its memory
        // by itself, and a piece is what MPI's int counts can say.
        static constexpr std::size_t piece = std::size_t{1} << (on_device ? 30 : 18);
    };

    basic_mpi_transport(MPI_Comm comm, bool owned, transport_options options)
        : basic_mpi_transport(std::make_unique<state>(comm, owned, options)) {}

    explicit basic_mpi_transport(std::unique_ptr<state> s) : state_(std::move(s)) {}

    static MPI_Comm copy_of(MPI_Comm comm, const transport_options& options) {
        // Not every MPI has MPI_Comm_idup: SimGrid's has not.
        if (options.timeout == std::chrono::milliseconds::zero()) {
            MPI_Comm copy = MPI_COMM_NULL;
            detail::require_mpi(MPI_Comm_dup(comm, &copy), "MPI_Comm_dup");
            return copy;
        }
        // MPI writes to it when all ranks have come, be that after the deadline.
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

    /// Host executions exchange in their turn; a stream is waited for, since MPI knows nothing of streams.
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

/// Ranks that exchange host memory.
using mpi_transport = basic_mpi_transport<host_space>;
/// Ranks that exchange device memory, through an MPI that can.
using cuda_aware_mpi_transport = basic_mpi_transport<device_space>;

/// The nodes of `transport`'s ranks as MPI sees them: ranks that share memory are one node. Collective. Throws
/// precondition_error that says which node has how many ranks unless all have the same number. The ranks meet within
/// the timeout, as for a split.
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
