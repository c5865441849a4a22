/// \file
/// A framework's engine on the GPU: it has its own streams and tensors, and passes pointers to the library. Here four
/// ranks on two "nodes" are threads that share one GPU. With one GPU for each rank, the transport is nccl_transport.

#include <zeropp/cuda.cuh>

#include <cmath>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <vector>

namespace {

using element = zeropp::bfloat16;  // a framework's own type works too, through element_traits

void check(cudaError_t code) {
    if (code != cudaSuccess) throw zeropp::cuda_error("engine", code);
}

/// An engine's own stream and memory.
struct engine {
    cudaStream_t stream = nullptr;
    std::vector<void*> blocks;

    engine() { check(cudaStreamCreate(&stream)); }
    ~engine() {
        for (void* block : blocks) cudaFree(block);
        cudaStreamDestroy(stream);
    }
    template <class T>
    zeropp::device_view<T> tensor(std::size_t n) {
        void* memory = nullptr;
        check(cudaMalloc(&memory, n * sizeof(T)));
        blocks.push_back(memory);
        return {static_cast<T*>(memory), n};
    }
};

float weight(std::size_t i) { return std::sin(static_cast<float>(i)); }

/// Gathers the weights of all ranks and reduces them as if they were gradients: the mean equals the weights.
void train(const zeropp::thread_transport& world) {
    engine own;
    const zeropp::cuda_stream exec(own.stream);
    zeropp::communicator comm(zeropp::two_level(2, 2), world);
    const zeropp::block_integer<8, 256> int8;
    const zeropp::block_integer<4, 128, zeropp::signed_absmax, zeropp::half> int4;

    const zeropp::partition part(1'000'003, comm.size());
    std::vector<element> mine(part.size(comm.rank()));
    for (std::size_t i = 0; i != mine.size(); ++i) mine[i] = element(weight(part.offset(comm.rank()) + i));
    const auto shard = own.tensor<element>(mine.size());
    const auto full = own.tensor<element>(part.count());
    const auto scratch = own.tensor<std::byte>(zeropp::hierarchical_quantized_reduce_scatter_workspace_bytes(
        comm.topology(), zeropp::hops{int8, int4}, part.count()));
    check(cudaMemcpy(shard.data(), mine.data(), shard.size_bytes(), cudaMemcpyHostToDevice));

    // Both are enqueued on the engine's stream, behind its earlier work; neither allocates.
    zeropp::quantized_all_gather(exec, comm, int8, shard, full, {}, scratch);
    zeropp::hierarchical_quantized_reduce_scatter(exec, comm, zeropp::hops{int8, int4}, full, shard,
                                                  {.operation = zeropp::reduction::mean}, scratch);
    exec.wait();

    check(cudaMemcpy(mine.data(), shard.data(), shard.size_bytes(), cudaMemcpyDeviceToHost));
    float worst = 0;
    for (std::size_t i = 0; i != mine.size(); ++i) {
        worst = std::fmax(worst, std::fabs(static_cast<float>(mine[i]) - weight(part.offset(comm.rank()) + i)));
    }
    std::printf("rank %d of %d: its slice of the mean is off by %.4f at most\n", comm.rank(), comm.size(), worst);
    if (!(worst <= 0.16f)) throw zeropp::error("wrong result");
}

}  // namespace

int main() try {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) return std::puts("skipped: no GPU here"), 77;
    zeropp::run_on_threads(4, train);
} catch (const std::exception& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    return 1;
}
