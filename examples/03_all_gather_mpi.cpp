/// \file
/// The all-gather between MPI processes, any number of them: `mpirun -np 4 03_all_gather_mpi`.

#include <zeropp/mpi.hpp>

#include <mpi.h>

#include <cmath>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <vector>

namespace {

float weight(std::size_t i) { return std::sin(static_cast<float>(i)); }

/// Gathers weights from every rank's shard. Returns the largest error.
float gather() {
    auto transport = zeropp::mpi_transport::duplicate(MPI_COMM_WORLD);
    const zeropp::two_level nodes = zeropp::shared_memory_nodes(transport);
    zeropp::communicator comm(nodes, std::move(transport));
    const zeropp::block_integer<4, 128, zeropp::signed_absmax, zeropp::half> int4;

    // The number of elements need not be a multiple of the number of ranks: the last shards are shorter.
    const zeropp::partition part(1'000'003, comm.size());
    std::vector<float> shard(part.size(comm.rank()));
    for (std::size_t i = 0; i != shard.size(); ++i) shard[i] = weight(part.offset(comm.rank()) + i);

    // Memory of the caller, so that a training loop allocates it once.
    std::vector<float> full(part.count());
    zeropp::workspace<zeropp::host_space> scratch(
        zeropp::quantized_all_gather_workspace_bytes(comm.topology(), int4, full.size()));
    zeropp::quantized_all_gather(zeropp::host{}, comm, int4, shard, full, {}, scratch.view());

    float worst = 0;
    for (std::size_t i = 0; i != full.size(); ++i) worst = std::fmax(worst, std::fabs(full[i] - weight(i)));
    std::printf("rank %d of %d, node %d of %d: sent %zu bytes instead of %zu, largest error %.4f\n", comm.rank(),
                comm.size(), comm.group_id(), nodes.groups(), zeropp::wire_bytes(int4, part.slice_size()),
                part.slice_size() * sizeof(float), worst);
    return worst;
}

}  // namespace

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    int status = 1;
    try {
        status = gather() <= 0.13f ? 0 : 1;  // destroys the transport before MPI_Finalize
    } catch (const std::exception& e) {
        std::fprintf(stderr, "error: %s\n", e.what());
        MPI_Abort(MPI_COMM_WORLD, 1);  // MPI_Finalize would wait for ranks that may be gone
    }
    MPI_Finalize();
    return status;
}
