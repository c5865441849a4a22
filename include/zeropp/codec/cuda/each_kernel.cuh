#pragma once
/// \file
/// The kernel that runs a function for every element of an array.

#include <zeropp/codec/cuda/tuning.hpp>
#include <zeropp/core/math.hpp>

#include <cstddef>

namespace zeropp::detail {

/// f(i) for i in [0, count). Bound by memory: as many threads as a multiprocessor holds, and one element for each.
template <class F>
struct each_kernel {
    F f;
    std::size_t count;

    static constexpr int resident_blocks = 2048 / kernel_threads;

    static std::size_t tiles(std::size_t count) { return ceil_div(count, kernel_threads); }

    __device__ void operator()() const {
        const std::size_t stride = std::size_t{gridDim.x} * kernel_threads;
        for (std::size_t i = std::size_t{blockIdx.x} * kernel_threads + threadIdx.x; i < count; i += stride) f(i);
    }
};

}  // namespace zeropp::detail
