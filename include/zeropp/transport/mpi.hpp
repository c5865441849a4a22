#pragma once
/// \file
/// Ranks that are MPI processes.

#include <zeropp/core/error.hpp>
#include <zeropp/core/view.hpp>
#include <zeropp/topology/two_level.hpp>
#include <zeropp/transport/deadline.hpp>
#include <zeropp/transport/mpi_wire.hpp>
#include <zeropp/transport/poll.hpp>
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
class basic_mpi_transport : public wire_transport<detail::mpi_wire<Space>> {
    using wire_type = detail::mpi_wire<Space>;
    using base = wire_transport<wire_type>;

public:
    /// Uses `comm` itself, which must outlive the transport; no other traffic may use it meanwhile. Its error handler
    /// stays as it is.
    static basic_mpi_transport borrow(MPI_Comm comm, transport_options options = {}) {
        require_support();
        return basic_mpi_transport(base(wire_type(comm, false), options));
    }

    /// Uses a duplicate of `comm`, which errors leave as exceptions. Collective over `comm`, within the timeout.
    static basic_mpi_transport duplicate(MPI_Comm comm, transport_options options = {}) {
        require_support();
        detail::require_timeout(wire_type::name, options);
        return basic_mpi_transport(base(wire_type(copy_of(comm, options), true), options));
    }

    /// The communicator itself.
    MPI_Comm native() const { return this->network().native(); }

    basic_mpi_transport split(std::span<const int> members) { return basic_mpi_transport(base::split(members)); }

private:
    explicit basic_mpi_transport(base transport) : base(std::move(transport)) {}

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

/// Ranks that exchange host memory.
using mpi_transport = basic_mpi_transport<host_space>;
/// Ranks that exchange device memory, through an MPI that can.
using cuda_aware_mpi_transport = basic_mpi_transport<device_space>;

/// The nodes of `transport`'s ranks as MPI sees them: ranks that share memory are one node. Collective. Throws
/// precondition_error that says which node has how many ranks unless all have the same number. The ranks meet within
/// the timeout, as for a split.
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
