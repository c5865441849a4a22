#pragma once
/// \file
/// CUDA graphs, for tests.

#include <zeropp/execution/cuda_stream.hpp>

#include <cuda_runtime_api.h>

namespace zeropp_test::gpu {

using zeropp::detail::require_cuda;

/// Work captured from a stream, to be run any number of times.
class captured {
public:
    /// Captures what work() enqueues on `stream`; anything that allocates device memory or synchronises fails it. In
    /// `mode` cudaStreamCaptureModeGlobal that holds for all threads of the process.
    template <class Work>
    captured(cudaStream_t stream, cudaStreamCaptureMode mode, Work work) {
        require_cuda(cudaStreamBeginCapture(stream, mode), "cudaStreamBeginCapture");
        try {
            work();
        } catch (...) {
            cudaGraph_t broken = nullptr;
            cudaStreamEndCapture(stream, &broken);
            if (broken != nullptr) cudaGraphDestroy(broken);
            throw;
        }
        cudaGraph_t graph = nullptr;
        require_cuda(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
        const cudaError_t code = cudaGraphInstantiate(&executable_, graph, 0);
        cudaGraphDestroy(graph);
        require_cuda(code, "cudaGraphInstantiate");
    }
    captured(const captured&) = delete;
    captured& operator=(const captured&) = delete;
    ~captured() { cudaGraphExecDestroy(executable_); }

    void run(cudaStream_t stream) const { require_cuda(cudaGraphLaunch(executable_, stream), "cudaGraphLaunch"); }

private:
    cudaGraphExec_t executable_ = nullptr;
};

}  // namespace zeropp_test::gpu
