/// One GPU for each rank, connected by NCCL. MPI starts the ranks and broadcasts NCCL's id.

#include "cuda_device.cuh"
#include "cuda_mpi.hpp"

#include <zeropp/nccl.hpp>

#include <string>

namespace zero3_gpt {
namespace {

/// Selects a separate GPU for each rank of a machine.
void take_a_gpu(zeropp::mpi_transport& world) {
    const int place = zeropp::shared_memory_nodes(world).index_of(world.rank());
    int missing = place < gpus_here() ? 0 : 1;
    MPI_Allreduce(MPI_IN_PLACE, &missing, 1, MPI_INT, MPI_SUM, world.native());
    if (missing != 0) {
        throw zeropp::error("--device cuda: a GPU for each rank is needed, but " + std::to_string(missing) +
                            " ranks have none");
    }
    zeropp::detail::require_cuda(cudaSetDevice(place), "cudaSetDevice");
}

}  // namespace

void require_cuda_for_mpi() { gpus_here(); }

std::vector<run_result> train_on_cuda_mpi(const settings& s, const workload& work, zeropp::mpi_transport& world,
                                          const zeropp::three_level& nodes) {
    take_a_gpu(world);
    ncclUniqueId id{};
    if (world.rank() == 0) id = zeropp::nccl_transport::unique_id();
    MPI_Bcast(&id, sizeof id, MPI_BYTE, 0, world.native());
    const cuda_device device;
    return train_all(device, s, work, zeropp::nccl_transport::create(id, world.size(), world.rank()), nodes);
}

}  // namespace zero3_gpt
