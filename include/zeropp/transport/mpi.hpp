#pragma once
/// \file
/// Ranks that are MPI processes.

#include <zeropp/core/error.hpp>
#include <zeropp/core/view.hpp>
#include <zeropp/topology/two_level.hpp>
#include <zeropp/transport/deadline.hpp>
#include <zeropp/transport/mpi_wire.hpp>
#include <zeropp/transport/wire_transport.hpp>

#include <mpi.h>
#if __has_include(<mpi-ext.h>)
#include <mpi-ext.h>
#endif

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
/// Host memory (`mpi_transport`): `host{}` and `host_threads` work with any thread level. A `host_queue` calls MPI from
/// its own thread: operations throw precondition_error unless MPI was initialised with MPI_THREAD_MULTIPLE.
///
/// Device memory (`cuda_aware_mpi_transport`): operations wait for the stream, block the caller until the bytes have
/// arrived, and cannot be captured. Making a transport throws precondition_error if MPI says that it has no CUDA
/// support; `staged<mpi_transport>` works with any MPI.
template <class Space>
class basic_mpi_transport : public wire_transport<detail::mpi_wire<Space>> {
    using wire_type = detail::mpi_wire<Space>;
    using base = wire_transport<wire_type>;

public:
    /// Uses `comm` itself, which must outlive the transport. No other traffic may use it meanwhile. Its error handler
    /// stays unchanged.
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

    /// The transport's communicator.
    MPI_Comm native() const { return this->network().native(); }

    basic_mpi_transport split(std::span<const int> members) { return basic_mpi_transport(base::split(members)); }

private:
    explicit basic_mpi_transport(base transport) : base(std::move(transport)) {}

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
            throw timeout_error(std::string(wire_type::name) + ": timeout of " +
                                std::to_string(options.timeout.count()) +
                                " ms in MPI_Comm_idup: not heard from all ranks");
        }
        detail::require_mpi(code, "MPI_Comm_idup");
        return *copy;
    }

    static void require_support() {
        if (std::same_as<Space, device_space> && detail::mpi_refuses_device_memory()) {
            throw precondition_error(wire_type::name,
                                     "an MPI with support for CUDA (staged<mpi_transport> works with any)",
                                     "one that says it has none");
        }
    }

    template <class S>
    friend two_level shared_memory_nodes(const basic_mpi_transport<S>& transport);
};

/// MPI processes that exchange host memory.
using mpi_transport = basic_mpi_transport<host_space>;
/// MPI processes that exchange device memory. Requires an MPI with CUDA support.
using cuda_aware_mpi_transport = basic_mpi_transport<device_space>;

/// Nodes of `transport`'s ranks: ranks that share memory, as MPI sees it, are one node. Collective; with a timeout the
/// ranks first meet within it. Throws precondition_error with each node's number of ranks unless the numbers are equal.
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
