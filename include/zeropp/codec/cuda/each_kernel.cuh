#pragma once
/// \file
/// The kernel that runs a function for every element of an array.

#include <zeropp/codec/cuda/tuning.hpp>
#include <zeropp/core/math.hpp>

#include <cstddef>

namespace zeropp::detail {

/// Function object of a kernel: calls f(i) for each i in [0, count), one i for each thread at a time. Memory bounds its
/// speed, so the kernel asks for as many threads as a multiprocessor holds.
template <class F>
struct each_kernel {
    F f;
    std::size_t count;

    /// Number of thread blocks that fill a multiprocessor of 2048 threads, the most of any GPU.
    static constexpr int resident_blocks = 2048 / kernel_threads;

    static std::size_t tiles(std::size_t count) { return ceil_div(count, kernel_threads); }

    __device__ void operator()() const {
        const std::size_t stride = std::size_t{gridDim.x} * kernel_threads;
        for (std::size_t i = std::size_t{blockIdx.x} * kernel_threads + threadIdx.x; i < count; i += stride) f(i);
    }
};

}  // namespace zeropp::detail
