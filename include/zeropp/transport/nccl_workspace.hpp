#pragma once
/// \file
/// Scratch memory that NCCL has allocated and registered.

#include <zeropp/core/view.hpp>
#include <zeropp/topology/columns.hpp>
#include <zeropp/topology/topology.hpp>
#include <zeropp/transport/communicator.hpp>
#include <zeropp/transport/nccl.hpp>
#include <zeropp/transport/nccl_family.hpp>

#include <nccl.h>

#include <cstddef>
#include <memory>
#include <vector>

#if NCCL_VERSION_CODE < NCCL_VERSION(2, 27, 0)
#error "nccl_workspace needs NCCL 2.27 or newer"
#endif

namespace zeropp {

/// Owns scratch memory of the device that is current on construction. NCCL has allocated it, and has registered it as a
/// symmetric window of all communicators of NCCL by which a `communicator` moves messages. Between GPUs of one NVLink
/// domain, NCCL can then read and write messages where they lie. Elsewhere it is memory as from cudaMalloc.
///
/// Requires   `view()` is scratch for collectives over that `communicator`, which outlives the workspace. The work on
///            the memory is complete before the destructor. NCCL 2.27 or newer
class nccl_workspace {
public:
    /// Allocates `bytes` bytes, equal on all ranks of `comm`. Collective over `comm`; blocks the caller. Throws
    /// nccl_error or timeout_error. If it throws on one rank, the others wait for that rank until their timeout.
    template <topology Topology>
    nccl_workspace(std::size_t bytes, communicator<Topology, nccl_transport>& comm) : bytes_(bytes) {
        if (bytes == 0) return;
        begin_collective(comm.world(), {"nccl_workspace", 0, {}, {}, {}}, {});
        void* memory = nullptr;
        detail::require_nccl(ncclMemAlloc(&memory, bytes), "ncclMemAlloc", nullptr);
        memory_.reset(static_cast<std::byte*>(memory));
        const served_slots served = served_by(comm.topology(), comm.rank());
        for (int l = 0; l != Topology::levels; ++l) {
            if (!has_hop(comm.topology(), l)) continue;
            // Columns ascend on all ranks, so that no ranks wait for one another in a circle.
            for (int i = 0; i != (l == 0 ? 1 : served.size()); ++i) {
                windows_.push_back(comm.peers(l, served[i]).register_window(memory, bytes));
            }
        }
    }

    /// Moves the workspace. Assignment would free memory before its windows end, so there is none.
    nccl_workspace(nccl_workspace&&) = default;

    device_view<std::byte> view() { return {memory_.get(), bytes_}; }
    device_view<const std::byte> view() const { return {memory_.get(), bytes_}; }

private:
    struct release {
        void operator()(std::byte* memory) const { ncclMemFree(memory); }
    };

    std::size_t bytes_;
    std::unique_ptr<std::byte, release> memory_;
    std::vector<detail::nccl_window> windows_;  // end before the memory
};

}  // namespace zeropp
