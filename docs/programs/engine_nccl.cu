/// \file
/// The communication of one ZeRO-3 step between GPUs, one process for each: `mpirun -n 8 engine_nccl 4` for nodes of
/// four GPUs. MPI starts the processes and carries NCCL's id; all tensors travel by NCCL. Ends with 77 without a GPU.

#include <zeropp/cuda.cuh>
#include <zeropp/nccl.hpp>

#include <mpi.h>

#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <utility>
#include <vector>

namespace {

void check(cudaError_t code) {
    if (code != cudaSuccess) throw zeropp::cuda_error("engine", code);
}

// [tensors]
/// A tensor in device memory, as an engine's own allocator has them.
template <class T>
class tensor {
public:
    explicit tensor(std::size_t n) : size_(n) { check(cudaMalloc(&memory_, n * sizeof(T))); }
    ~tensor() { cudaFree(memory_); }
    tensor(const tensor&) = delete;
    tensor& operator=(const tensor&) = delete;

    zeropp::device_view<T> view() const { return {static_cast<T*>(memory_), size_}; }

private:
    void* memory_ = nullptr;
    std::size_t size_;
};
// [tensors]

// [engine]
using element = zeropp::bfloat16;
using int8 = zeropp::block_integer<8, 256, zeropp::symmetric, zeropp::half>;
using int8_gradients = zeropp::block_integer<8, 256, zeropp::symmetric, zeropp::bfloat16>;
using int4_gradients = zeropp::block_integer<4, 128, zeropp::signed_absmax, zeropp::bfloat16>;

void train(zeropp::nccl_transport world, int gpus_per_node, cudaStream_t stream) {
    const zeropp::cuda_stream exec(stream);  // borrows the engine's
    const auto nodes = zeropp::two_level::of_size(world.size(), gpus_per_node);
    zeropp::communicator comm(nodes, std::move(world));

    const zeropp::partition part(100'000'000, comm.size());
    const tensor<element> shard(part.size(comm.rank())), full(part.count());
    const std::size_t gather = zeropp::quantized_all_gather_workspace_bytes(nodes, int8{}, part.count());
    const std::size_t reduce = zeropp::hierarchical_quantized_reduce_scatter_workspace_bytes(
        nodes, zeropp::hops{int8_gradients{}, int4_gradients{}}, part.count());
    const tensor<std::byte> scratch(gather > reduce ? gather : reduce);

    std::vector<element> host(part.size(comm.rank()), element(0.5f));
    check(cudaMemcpyAsync(shard.view().data(), host.data(), shard.view().size_bytes(), cudaMemcpyHostToDevice, stream));

    // Enqueued behind what the stream holds; nothing allocates, nothing waits for the GPU.
    zeropp::quantized_all_gather(exec, comm, int8{}, shard.view(), full.view(), {}, scratch.view());
    // ... the engine's own kernels on the same stream: forward, backward; here the weights are their own gradient ...
    zeropp::hierarchical_quantized_reduce_scatter(exec, comm, zeropp::hops{int8_gradients{}, int4_gradients{}},
                                                  full.view(), shard.view(), {.operation = zeropp::reduction::mean},
                                                  scratch.view());
    comm.world().wait(exec);  // within the transport's timeout; exec.wait() has none

    check(cudaMemcpy(host.data(), shard.view().data(), shard.view().size_bytes(), cudaMemcpyDeviceToHost));
    float worst = 0;
    for (const element x : host) worst = std::fmax(worst, std::fabs(static_cast<float>(x) - 0.5f));
    std::printf("rank %d of %d: the mean is off by %.4f at most\n", comm.rank(), comm.size(), worst);
    if (!(worst <= 0.05f)) throw zeropp::error("wrong result");
}
// [engine]

// [start]
int start(int gpus_per_node) {
    int rank = 0, ranks = 1, devices = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (cudaGetDeviceCount(&devices) != cudaSuccess) devices = 0;
    MPI_Allreduce(MPI_IN_PLACE, &devices, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);  // no rank goes on alone
    if (devices == 0) return std::puts("skipped: no GPU here, or on another rank"), 77;
    check(cudaSetDevice(rank % gpus_per_node));

    ncclUniqueId id{};
    if (rank == 0) id = zeropp::nccl_transport::unique_id();
    MPI_Bcast(&id, sizeof id, MPI_BYTE, 0, MPI_COMM_WORLD);
    cudaStream_t stream = nullptr;
    check(cudaStreamCreate(&stream));
    train(zeropp::nccl_transport::create(id, ranks, rank, {.timeout = std::chrono::seconds(30)}), gpus_per_node,
          stream);
    check(cudaStreamDestroy(stream));
    return 0;
}
// [start]

}  // namespace

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    int status = 1;
    try {
        status = start(argc > 1 ? std::atoi(argv[1]) : 1);
    } catch (const std::exception& e) {
        std::fprintf(stderr, "error: %s\n", e.what());
        MPI_Abort(MPI_COMM_WORLD, 1);  // the other ranks may be gone
    }
    MPI_Finalize();
    return status;
}
