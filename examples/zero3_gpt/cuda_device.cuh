#pragma once

#include "device.hpp"
#include "settings.hpp"

#include <zeropp/codec/cuda/launch.cuh>
#include <zeropp/core/error.hpp>
#include <zeropp/core/math.hpp>
#include <zeropp/cuda.cuh>

#include <cublas_v2.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <type_traits>

namespace zero3_gpt {

/// Number of GPUs that this process sees. Throws zeropp::error if there is none.
inline int gpus_here() {
    int devices = 0;
    const cudaError_t code = cudaGetDeviceCount(&devices);
    if (code == cudaSuccess && devices > 0) return devices;
    throw zeropp::error(std::string("--device cuda: there is no GPU here (") + cudaGetErrorString(code) + ")");
}

/// A row's team in a kernel: `lanes` neighbouring threads of a warp.
class row_lanes {
public:
    static constexpr int teams = zeropp::detail::kernel_threads / lanes;

    __device__ row_lanes()
        : lane_(static_cast<int>(threadIdx.x) % lanes),
          mask_(((1U << lanes) - 1) << (threadIdx.x / lanes * lanes % 32)) {}

    template <class F>
    __device__ void each(int count, F f) const {
        for (int i = lane_; i < count; i += lanes) f(i);
    }

    template <class F>
    __device__ void at(int i, F f) const {
        if (i % lanes == lane_) f();
    }

    /// Adds in the order of row_loop::sum: both lanes of an exchange add the same two numbers.
    template <class Term>
    __device__ float sum(int count, Term term) const {
        float partial = 0.0F;
        for (int i = lane_; i < count; i += lanes) partial += term(i);
        for (int half = lanes / 2; half > 0; half /= 2) partial += __shfl_xor_sync(mask_, partial, half);
        return partial;
    }

    template <class Term>
    __device__ std::int32_t largest(int count, Term term) const {
        std::int32_t largest = smallest_int;
        const auto take = [&largest](std::int32_t value) { largest = largest < value ? value : largest; };
        for (int i = lane_; i < count; i += lanes) take(term(i));
        for (int half = lanes / 2; half > 0; half /= 2) take(__shfl_xor_sync(mask_, largest, half));
        return largest;
    }

private:
    int lane_;
    unsigned mask_;
};

/// Thread blocks for which a multiprocessor must have registers; they are half of its threads. No kernel needs more.
inline constexpr int resident_kernel_blocks = 4;

// Kernels that run f; each thread or team loops over the work beyond the grid.

template <class F>
struct element_kernel {
    static constexpr int resident_blocks = resident_kernel_blocks;

    F f;
    std::int64_t count;

    __device__ void operator()() const {
        const std::int64_t stride = std::int64_t{gridDim.x} * blockDim.x;
        for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += stride) f(i);
    }
};

template <class F>
struct row_kernel {
    static constexpr int resident_blocks = resident_kernel_blocks;

    F f;
    int rows;

    __device__ void operator()() const {
        const row_lanes team;
        const int stride = static_cast<int>(gridDim.x) * row_lanes::teams;
        const int first = static_cast<int>(blockIdx.x) * row_lanes::teams + static_cast<int>(threadIdx.x) / lanes;
        for (int row = first; row < rows; row += stride) f(team, row);
    }
};

template <class F>
struct column_kernel {
    static constexpr int resident_blocks = resident_kernel_blocks;

    F f;
    int rows;
    int columns;

    __device__ void operator()() const {
        const int stride = static_cast<int>(gridDim.x * blockDim.x);
        for (int column = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x); column < columns; column += stride) {
            for (int row = 0; row < rows; ++row) f(row, column);
        }
    }
};

/// Computes on the current GPU, on its own stream, with cuBLAS in fp32.
class cuda_device {
public:
    using space = zeropp::device_space;
    using execution = zeropp::cuda_stream;

    class queue {
    public:
        queue() : stream_(create()), exec_(stream_.get()) {}

        [[nodiscard]] const execution& exec() const noexcept { return exec_; }

    private:
        struct finish {
            void operator()(cudaStream_t stream) const {
                cudaStreamSynchronize(stream);
                cudaStreamDestroy(stream);
            }
        };
        using owned_stream = std::unique_ptr<std::remove_pointer_t<cudaStream_t>, finish>;

        static owned_stream create() {
            cudaStream_t stream = nullptr;
            zeropp::detail::require_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
                                         "cudaStreamCreateWithFlags");
            return owned_stream(stream);
        }

        owned_stream stream_;
        execution exec_;
    };

    cuda_device() {
        cublasHandle_t handle = nullptr;
        require_cublas(cublasCreate(&handle), "cublasCreate");
        blas_.reset(handle);
        require_cublas(cublasSetStream(handle, native()), "cublasSetStream");
    }

    static cuda_device of(const settings&) { return {}; }

    [[nodiscard]] queue make_queue() const { return {}; }

    template <class T>
    void upload(T* to, std::span<const T> from) const {
        copy(to, from.data(), from.size_bytes(), cudaMemcpyHostToDevice);
        // `from` is pageable memory. CUDA has read it when the call returns, unless the device reads it in its turn.
        if (compute_.exec().reads_host_pages()) compute_.exec().wait();
    }

    template <class T>
    void download(std::span<T> to, const T* from) const {
        copy(to.data(), from, to.size_bytes(), cudaMemcpyDeviceToHost);
        compute_.exec().wait();
    }

    template <class F>
    void for_each(std::int64_t count, F f) const {
        launch(static_cast<std::size_t>(count), zeropp::detail::kernel_threads, element_kernel<F>{f, count});
    }

    template <class F>
    void for_each_row(int rows, F f) const {
        launch(static_cast<std::size_t>(rows), row_lanes::teams, row_kernel<F>{f, rows});
    }

    template <class F>
    void for_each_column(int rows, int columns, F f) const {
        launch(static_cast<std::size_t>(columns), zeropp::detail::kernel_threads, column_kernel<F>{f, rows, columns});
    }

    /// cuBLAS is column-major, so this multiplies the transposes: c^T = b^T a^T.
    void multiply(const product_size& size, const factor& a, const factor& b, const product& c) const {
        if (size.rows == 0 || size.batch == 0) return;  // a rank without text
        const auto transposition = [](const factor& f) { return f.transposed ? CUBLAS_OP_T : CUBLAS_OP_N; };
        require_cublas(cublasSgemmStridedBatched(blas_.get(), transposition(b), transposition(a), size.columns,
                                                 size.rows, size.inner, &size.scale, b.data, b.stride, b.step, a.data,
                                                 a.stride, a.step, &size.keep, c.data, c.stride, c.step, size.batch),
                       "cublasSgemmStridedBatched");
    }

    void wait(const execution::event& event) const { compute_.exec().wait(event); }
    [[nodiscard]] execution::event record() const { return compute_.exec().record(); }

private:
    template <class Kernel>
    void launch(std::size_t count, int for_each_block, const Kernel& kernel) const {
        zeropp::detail::launch(compute_.exec(), 1, zeropp::ceil_div(count, static_cast<std::size_t>(for_each_block)),
                               kernel);
    }

    struct destroy {
        void operator()(cublasHandle_t handle) const { cublasDestroy(handle); }
    };

    static void require_cublas(cublasStatus_t status, const char* call) {
        if (status == CUBLAS_STATUS_SUCCESS) return;
        throw zeropp::error(std::string(call) + ": " + cublasGetStatusName(status) + ", " +
                            cublasGetStatusString(status));
    }

    cudaStream_t native() const { return compute_.exec().native(); }

    void copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) const {
        zeropp::detail::require_cuda(cudaMemcpyAsync(to, from, bytes, kind, native()), "cudaMemcpyAsync");
    }

    queue compute_;
    std::unique_ptr<std::remove_pointer_t<cublasHandle_t>, destroy> blas_;
};

}  // namespace zero3_gpt
