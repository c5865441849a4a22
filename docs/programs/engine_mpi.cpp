/// \file
/// The communication of one ZeRO-3 step between MPI processes: weights gathered for the forward pass, gathered again
/// inside the node for the backward pass, and gradients reduced. `mpirun -n 4 engine_mpi [ranks per node]`.

#include <zeropp/mpi.hpp>

#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <utility>
#include <vector>

namespace {

// [engine]
constexpr std::size_t parameters = 1'000'003;  // of one layer; nothing has to divide

using bf16 = zeropp::cast_to<zeropp::bfloat16>;
using int8 = zeropp::block_integer<8, 256, zeropp::symmetric, zeropp::half>;
using int8_gradients = zeropp::block_integer<8, 256, zeropp::symmetric, zeropp::bfloat16>;
using int4_gradients = zeropp::block_integer<4, 128, zeropp::signed_absmax, zeropp::bfloat16>;
using secondary_type = zeropp::secondary_partition<bf16, zeropp::host_space>;

template <class Communicator>
void train(Communicator& comm, int steps) {
    const zeropp::partition part(parameters, comm.size());
    std::vector<float> shard(part.size(comm.rank()), 1.0f), shard_gradient(shard.size());
    std::vector<float> weights(parameters), gradient(parameters);

    // Memory is made once: scratch for any of the calls, and this rank's 1/k of the layer for the backward pass.
    const std::size_t scratch_bytes =
        std::max({zeropp::quantized_all_gather_workspace_bytes(comm.topology(), int8{}, parameters),
                  zeropp::secondary_partition_gather_workspace_bytes(comm.group_size(), bf16{}, parameters),
                  zeropp::hierarchical_quantized_reduce_scatter_workspace_bytes(
                      comm.topology(), zeropp::hops{int8_gradients{}, int4_gradients{}}, parameters)});
    zeropp::workspace<zeropp::host_space> scratch(scratch_bytes);
    zeropp::workspace<zeropp::host_space> kept(secondary_type::storage_bytes({}, parameters, comm.group_size()));
    secondary_type secondary({}, parameters, comm.group_size(), comm.index(), kept.view());

    const zeropp::host exec;
    for (std::uint64_t step = 1; step <= static_cast<std::uint64_t>(steps); ++step) {
        // Forward (qwZ). This rank keeps its part.
        zeropp::quantized_all_gather(exec, comm, int8{}, shard, weights, {}, scratch.view());
        secondary.store(exec, weights, step);
        // Backward (hpZ): from what the node keeps.
        zeropp::secondary_partition_gather(exec, comm, secondary, step, weights, scratch.view());
        gradient = weights;  // of the loss |w|^2 / 2
        // Gradients (qgZ): 8 bits inside the node, 4 across.
        zeropp::hierarchical_quantized_reduce_scatter(exec, comm, zeropp::hops{int8_gradients{}, int4_gradients{}},
                                                      gradient, shard_gradient, {.operation = zeropp::reduction::mean},
                                                      scratch.view());
        for (std::size_t i = 0; i != shard.size(); ++i) shard[i] -= 0.1f * shard_gradient[i];  // your optimizer
    }
    const float reached = shard.at(0), exact = std::pow(0.9f, static_cast<float>(steps));
    std::printf("rank %d: weights are %.4f after %d steps\n", comm.rank(), static_cast<double>(reached), steps);
    if (!(std::fabs(reached - exact) < 0.01f)) throw zeropp::error("the weights are wrong");
}
// [engine]

// [main]
/// Trains, and prints what each collective has sent.
void run(int ranks_per_node) {
    // A rank that does not come is an error after 30 seconds, not a hang.
    auto world = zeropp::mpi_transport::duplicate(MPI_COMM_WORLD, {.timeout = std::chrono::seconds(30)});
    const zeropp::two_level nodes = ranks_per_node > 0 ? zeropp::two_level::of_size(world.size(), ranks_per_node)
                                                       : zeropp::shared_memory_nodes(world);
    zeropp::communicator comm(nodes, zeropp::counting(std::move(world), nodes));
    train(comm, 10);
    if (comm.rank() != 0) return;
    for (const zeropp::traffic& t : comm.world().by_primitive()) {
        std::printf("%-38s %10.0f bytes inside the node, %9.0f across, for each call\n", t.primitive.str().c_str(),
                    static_cast<double>(t.intra_node_bytes) / static_cast<double>(t.calls),
                    static_cast<double>(t.inter_node_bytes) / static_cast<double>(t.calls));
    }
}

int main_of(int argc, char** argv) {
    try {
        run(argc > 1 ? std::atoi(argv[1]) : 0);
    } catch (const std::exception& e) {
        std::fprintf(stderr, "error: %s\n", e.what());
        MPI_Abort(MPI_COMM_WORLD, 1);  // MPI_Finalize would wait for ranks that may be gone
    }
    return 0;
}
// [main]

}  // namespace

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    const int status = main_of(argc, argv);  // the transport is gone before MPI_Finalize
    MPI_Finalize();
    return status;
}
