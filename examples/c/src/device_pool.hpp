#pragma once

#include <zeropp/execution/cuda_stream.hpp>

#include <cstddef>

namespace zeropp_c {

/// Memory of CUDA's default pool of the current device. Allocates and frees in the order of a stream, without blocking.
struct device_pool {
    void* allocate(cudaStream_t stream, std::size_t bytes, std::size_t) const {
        void* memory = nullptr;
        zeropp::detail::require_cuda(cudaMallocAsync(&memory, bytes, stream), "cudaMallocAsync");
        return memory;
    }
    void deallocate(cudaStream_t stream, void* memory, std::size_t, std::size_t) const {
        cudaFreeAsync(memory, stream);
    }
};

}  // namespace zeropp_c
