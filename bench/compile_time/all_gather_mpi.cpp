#include <zeropp/mpi.hpp>

#include <mpi.h>

#include <utility>
#include <vector>

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    {
        auto transport = zeropp::mpi_transport::duplicate(MPI_COMM_WORLD);
        const zeropp::two_level nodes = zeropp::shared_memory_nodes(transport);
        zeropp::communicator comm(nodes, std::move(transport));
        std::vector<float> shard(1000), full(1000 * static_cast<std::size_t>(comm.size()));
        zeropp::quantized_all_gather(zeropp::host{}, comm, zeropp::block_integer<8, 256>(), shard, full);
    }
    MPI_Finalize();
}
