/// \file
/// A collective captured into a CUDA graph once and replayed in every step. A single rank shows the calls, which are
/// the same between GPUs, on nccl_transport. Ends with 77 without a GPU.

#include <zeropp/cuda.cuh>

#include <cstddef>
#include <cstdio>
#include <exception>

namespace {

void check(cudaError_t code) {
    if (code != cudaSuccess) throw zeropp::cuda_error("graph", code);
}

template <class Communicator>
void capture(Communicator& comm, const zeropp::device_view<zeropp::bfloat16>& shard,
             const zeropp::device_view<zeropp::bfloat16>& full, const zeropp::device_view<std::byte>& scratch) {
    const zeropp::block_integer<8, 256> int8;
    cudaStream_t intra_node_stream = nullptr, inter_node_stream = nullptr;
    check(cudaStreamCreate(&intra_node_stream));
    check(cudaStreamCreate(&inter_node_stream));
    {
        const zeropp::cuda_stream intra_node(intra_node_stream), inter_node(inter_node_stream);
        const zeropp::pipeline<zeropp::cuda_stream> both{intra_node, inter_node};

        // [capture]
        // Once as it is, so that whatever is set up on first use is there; then the same call into a graph.
        zeropp::quantized_all_gather(both, comm, int8, shard, full, {.chunks = 4}, scratch);
        intra_node.wait();
        cudaGraph_t graph = nullptr;
        cudaGraphExec_t step = nullptr;
        check(
            cudaStreamBeginCapture(intra_node_stream, cudaStreamCaptureModeThreadLocal));  // `intra_node` is the origin
        zeropp::quantized_all_gather(both, comm, int8, shard, full, {.chunks = 4}, scratch);
        check(cudaStreamEndCapture(intra_node_stream, &graph));
        check(cudaGraphInstantiate(&step, graph, nullptr, nullptr, 0));

        for (int i = 0; i != 100; ++i) check(cudaGraphLaunch(step, intra_node_stream));
        intra_node.wait();
        check(cudaGraphExecDestroy(step));  // before the communicator, to which it refers
        check(cudaGraphDestroy(graph));
        // [capture]
    }
    check(cudaStreamDestroy(intra_node_stream));
    check(cudaStreamDestroy(inter_node_stream));
}

}  // namespace

int main() try {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) return std::puts("skipped: no GPU here"), 77;
    zeropp::run_on_threads(1, [](zeropp::thread_transport world) {
        zeropp::communicator comm(zeropp::two_level(1, 1), world);
        constexpr std::size_t n = 1'000'000;
        const zeropp::gather_options chunks{.chunks = 4};
        const std::size_t bytes =
            zeropp::quantized_all_gather_workspace_bytes(comm.topology(), zeropp::block_integer<8, 256>{}, n, chunks);
        void* memory = nullptr;
        check(cudaMalloc(&memory, 2 * n * sizeof(zeropp::bfloat16) + bytes));
        auto* const elements = static_cast<zeropp::bfloat16*>(memory);
        check(cudaMemset(elements, 0, n * sizeof(zeropp::bfloat16)));
        capture(comm, {elements, n}, {elements + n, n}, {reinterpret_cast<std::byte*>(elements + 2 * n), bytes});
        check(cudaFree(memory));
    });
} catch (const std::exception& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    return 1;
}
