#pragma once
/// \file
/// Ranks that are MPI processes.

#include <zeropp/core/error.hpp>
#include <zeropp/core/math.hpp>
#include <zeropp/core/view.hpp>
#include <zeropp/execution/execution.hpp>
#include <zeropp/execution/host.hpp>
#include <zeropp/topology/two_level.hpp>
#include <zeropp/transport/poll.hpp>
#include <zeropp/transport/transport.hpp>

#include <mpi.h>
#if __has_include(<mpi-ext.h>)
#include <mpi-ext.h>
#endif

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace zeropp {

/// A call to MPI that failed; `code()` is MPI's own.
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

/// Whether MPI says that it cannot work on device memory. Open MPI and its relatives announce the question, MPICH has it
/// since 4.0; others cannot be asked.
inline bool mpi_refuses_device_memory() {
#if defined(MPIX_CUDA_AWARE_SUPPORT) || (defined(MPICH_NUMVERSION) && MPICH_NUMVERSION >= 40000300)
    return MPIX_Query_cuda_support() == 0;
#else
    return false;
#endif
}
}  // namespace detail

/// Moves bytes in `Space` with MPI's nonblocking point-to-point calls: every peer is served at once, and messages travel
/// in pieces, of any size in all. A rank that waits long sleeps between questions to MPI, at most 250 us at a time, so
/// that ranks may share cores. Ranks that disagree about a size get an error where that is a matter of less than a
/// piece, 256 KiB, and wait for each other else, unless the transport is `checked`. The transport must be destroyed
/// before MPI_Finalize.
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
    static basic_mpi_transport borrow(MPI_Comm comm) {
        require_support();
        return basic_mpi_transport(comm, false);
    }

    /// Uses a duplicate of `comm`, which errors leave as exceptions. Collective over `comm`.
    static basic_mpi_transport duplicate(MPI_Comm comm) {
        require_support();
        MPI_Comm copy = MPI_COMM_NULL;
        detail::require_mpi(MPI_Comm_dup(comm, &copy), "MPI_Comm_dup");
        return basic_mpi_transport(copy, true);
    }

    int rank() const { return state_->rank; }
    int size() const { return state_->size; }
    MPI_Comm native() const { return state_->comm; }

    template <execution E>
    requires std::same_as<typename E::space, Space>
    void all_gather(const E& exec, const std::byte* send, std::byte* recv, std::size_t bytes) {
        in_turn(exec, [s = state_.get(), send, recv, bytes](const auto& on) {
            s->exchange(
                on, [=](int) { return send; }, recv, bytes);
        });
    }

    template <execution E>
    requires std::same_as<typename E::space, Space>
    void all_to_all(const E& exec, const std::byte* send, std::byte* recv, std::size_t bytes) {
        in_turn(exec, [s = state_.get(), send, recv, bytes](const auto& on) {
            s->exchange(
                on, [=](int peer) { return send + static_cast<std::size_t>(peer) * bytes; }, recv, bytes);
        });
    }

    basic_mpi_transport split(std::span<const int> members) {
        const auto self = std::find(members.begin(), members.end(), rank());
        const bool listed = self != members.end();
        MPI_Comm comm = MPI_COMM_NULL;
        // A rank with a wrong list takes part before it throws, so that the others do not wait for it.
        detail::require_mpi(MPI_Comm_split(state_->comm, listed ? members.front() : MPI_UNDEFINED,
                                           static_cast<int>(self - members.begin()), &comm),
                            "MPI_Comm_split");
        if (!listed) {
            throw precondition_error(name, "a split list with rank " + std::to_string(rank()), "one without");
        }
        basic_mpi_transport child(comm, true);
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
        MPI_Comm comm;
        bool owned;
        int rank = 0;
        int size = 0;
        int thread_level = MPI_THREAD_SINGLE;
        std::vector<MPI_Request> requests;  // of each round, a receive and a send by turns

        state(MPI_Comm c, bool own) : comm(c), owned(own) {
            if (owned) detail::require_mpi(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
            detail::require_mpi(MPI_Comm_rank(comm, &rank), "MPI_Comm_rank");
            detail::require_mpi(MPI_Comm_size(comm, &size), "MPI_Comm_size");
            detail::require_mpi(MPI_Query_thread(&thread_level), "MPI_Query_thread");
            requests.assign(in_flight * round_size(), MPI_REQUEST_NULL);
        }

        ~state() {
            int finalized = 0;
            MPI_Finalized(&finalized);
            if (owned && !finalized) MPI_Comm_free(&comm);
        }

        state(const state&) = delete;
        state& operator=(const state&) = delete;

        /// Sends source(peer) to each peer and receives recv[peer * bytes ...] from it. This rank's own part is a copy
        /// on `exec`.
        template <class E, class Source>
        void exchange(const E& exec, Source source, std::byte* recv, std::size_t bytes) {
            std::byte* own = recv + static_cast<std::size_t>(rank) * bytes;
            if (bytes != 0 && source(rank) != own) exec.copy(own, source(rank), bytes);
            const std::size_t pieces = ceil_div(bytes, piece);  // of each message; a round is one for every peer
            outcome all;
            for (std::size_t p = 0; p != pieces + in_flight; ++p) {
                const std::span<MPI_Request> round(requests.data() + p % in_flight * round_size(), round_size());
                if (p >= in_flight) finish(round, all);
                if (p < pieces && all.failure == MPI_SUCCESS) {
                    const std::size_t done = p * piece;
                    begin(round, source, recv, bytes, done);
                }
            }
            detail::require_mpi(all.failure, "MPI_Test");
            const std::size_t expected = static_cast<std::size_t>(size - 1) * bytes;
            if (all.received != expected) {
                throw precondition_error(name, std::to_string(expected) + " bytes from the other ranks",
                                         std::to_string(all.received));
            }
        }

        /// Starts to move the piece behind the first `done` bytes of every peer's message of `bytes` bytes.
        template <class Source>
        void begin(std::span<MPI_Request> round, Source source, std::byte* recv, std::size_t bytes, std::size_t done) {
            const int count = static_cast<int>(std::min(piece, bytes - done));
            // Ranks that disagree about the size must not take a piece of one message for one of another.
            const int tag = static_cast<int>(ceil_div(bytes, piece) % 32768);
            MPI_Request* request = round.data();
            // Every rank starts with another peer, so that no receiver is everybody's first.
            for (int i = 1; i < size; ++i) {
                const int from = (rank + size - i) % size;
                const int to = (rank + i) % size;
                std::byte* in = recv + static_cast<std::size_t>(from) * bytes + done;
                detail::require_mpi(MPI_Irecv(in, count, MPI_BYTE, from, tag, comm, request++), "MPI_Irecv");
                detail::require_mpi(MPI_Isend(source(to) + done, count, MPI_BYTE, to, tag, comm, request++),
                                    "MPI_Isend");
            }
        }

        /// What has become of the requests so far. A message that is too long is MPI's error; one that is too short is
        /// not, and would leave old bytes for new ones.
        struct outcome {
            int failure = MPI_SUCCESS;
            std::size_t received = 0;
        };

        /// Waits for all requests of a round, one by one: after an error the rest still uses the caller's memory, and
        /// Open MPI 4.1's MPI_Waitall hangs.
        void finish(std::span<MPI_Request> round, outcome& all) {
            for (std::size_t i = 0; i != round.size(); ++i) {
                MPI_Status status;
                int count = 0;
                int code = wait_for(round[i], status);
                if (code == MPI_SUCCESS && i % 2 == 0) code = MPI_Get_count(&status, MPI_BYTE, &count);
                if (all.failure == MPI_SUCCESS) all.failure = code;
                all.received += static_cast<std::size_t>(count);
                round[i] = MPI_REQUEST_NULL;
            }
        }

        /// Returns MPI's code. Not MPI_Wait, which may never leave the processor to the ranks that it waits for.
        int wait_for(MPI_Request& request, MPI_Status& status) {
            int code = MPI_SUCCESS;
            const auto done = [&] {
                int completed = 0;
                code = MPI_Test(&request, &completed, &status);
                return completed != 0 || code != MPI_SUCCESS;
            };
            detail::poll_until(done);
            return code;
        }

        /// A receive and a send for each peer.
        std::size_t round_size() const { return 2 * static_cast<std::size_t>(size - 1); }

        // A wait that sees no end for a while sleeps; ranks that share memory move bytes only while both are awake. Host
        // memory travels in pieces so small, and so few at a time, that something ends as long as bytes flow. A device
        // moves its memory by itself, and a piece is what MPI's int counts can say.
        static constexpr std::size_t piece = std::size_t{1} << (on_device ? 30 : 18);
        static constexpr std::size_t in_flight = 8;
    };

    basic_mpi_transport(MPI_Comm comm, bool owned) : state_(std::make_unique<state>(comm, owned)) {}

    static void require_support() {
        if (on_device && detail::mpi_refuses_device_memory()) {
            throw precondition_error(name, "an MPI with support for CUDA (staged<mpi_transport> works with any)",
                                     "one that says it has none");
        }
    }

    /// Host executions run the work in their turn; a stream is waited for, since MPI knows nothing of streams.
    template <class E, class Work>
    void in_turn(const E& exec, Work work) const {
        if constexpr (on_device) {
            exec.wait();
            work(exec);
        } else {
            require_threads<E>();
            exec.enqueue([work] { work(host{}); });
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

    std::unique_ptr<state> state_;
};

/// Ranks that exchange host memory.
using mpi_transport = basic_mpi_transport<host_space>;
/// Ranks that exchange device memory, through an MPI that can.
using cuda_aware_mpi_transport = basic_mpi_transport<device_space>;

/// The nodes of `transport`'s ranks as MPI sees them: ranks that share memory are one node. Collective. Throws
/// precondition_error that says which node has how many ranks unless all have the same number.
template <class Space>
two_level shared_memory_nodes(const basic_mpi_transport<Space>& transport) {
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
