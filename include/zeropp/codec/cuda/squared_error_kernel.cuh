#pragma once
/// \file
/// The kernel that measures what quantization costs.

#include <zeropp/codec/cuda/tuning.hpp>
#include <zeropp/core/element.hpp>

#include <cstddef>

namespace zeropp::detail {

/// energies <- the sums of squares of n elements, and of their differences to `decoded`. For a single thread block, so
/// that the order of the sums, and with it their bits, are the same on every device; it is not for the hot path.
template <class T>
struct squared_error_kernel {
    const T* tensor;
    const float* decoded;
    std::size_t n;
    double* energies;

    static constexpr int resident_blocks = 1;

    __device__ void operator()() const {
        __shared__ double sums[2][kernel_threads];
        double signal = 0;
        double error = 0;
        for (std::size_t i = threadIdx.x; i < n; i += kernel_threads) {
            const double x = element_traits<T>::to_float(tensor[i]);
            const double off = x - static_cast<double>(decoded[i]);
            signal += x * x;
            error += off * off;
        }
        sums[0][threadIdx.x] = signal;
        sums[1][threadIdx.x] = error;
        for (unsigned half = kernel_threads / 2; half != 0; half /= 2) {
            __syncthreads();
            if (threadIdx.x < half) {
                sums[0][threadIdx.x] += sums[0][threadIdx.x + half];
                sums[1][threadIdx.x] += sums[1][threadIdx.x + half];
            }
        }
        if (threadIdx.x == 0) {
            energies[0] = sums[0][0];
            energies[1] = sums[1][0];
        }
    }
};

}  // namespace zeropp::detail
