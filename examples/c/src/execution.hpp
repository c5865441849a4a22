#pragma once

#ifdef ZEROPP_C_CUDA
#include <zeropp/cuda.cuh>

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#else
#include <zeropp/execution/host.hpp>
#endif

namespace zeropp_c {

/// The execution that this build serves: a CUDA stream with ZEROPP_C_CUDA, host threads otherwise. A null pool is one
/// thread.
#ifdef ZEROPP_C_CUDA
using execution = zeropp::cuda_stream;
inline execution on(void* stream) { return execution(static_cast<cudaStream_t>(stream)); }

/// Executions of a communicator's calls, by stream, with the events of earlier calls.
class executions {
public:
    const execution& on(void* stream) {
        if (const auto known = known_.find(stream); known != known_.end()) return known->second;
        if (known_.size() == 64) known_.clear();
        return known_.emplace(stream, zeropp_c::on(stream)).first->second;
    }

private:
    std::map<void*, execution> known_;
};

/// Work of the library beside its calls' streams, also while these are captured into a CUDA graph: a stream, and a pool
/// that keeps memory which is given back.
class aside {
public:
    aside() = default;
    aside(const aside&) = delete;
    aside& operator=(const aside&) = delete;
    ~aside() {
        if (pool_ != nullptr) cudaMemPoolDestroy(pool_);
        if (stream_ != nullptr) cudaStreamDestroy(stream_);
    }

    /// Runs work(exec, memory...), with the `memory...` of a list or a workspace. Then blocks until it is complete, and
    /// waits for no other work.
    template <class Work>
    void run(Work work) {
        const relaxed_capture allowed;
        if (!exec_) open();
        work(*exec_, *exec_, *this);
        exec_->wait();
    }

    /// As of a device_memory_resource.
    void* allocate(cudaStream_t stream, std::size_t bytes, std::size_t) const {
        void* memory = nullptr;
        zeropp::detail::require_cuda(cudaMallocFromPoolAsync(&memory, bytes, pool_, stream), "cudaMallocFromPoolAsync");
        return memory;
    }
    void deallocate(cudaStream_t stream, void* memory, std::size_t, std::size_t) const {
        cudaFreeAsync(memory, stream);
    }

private:
    /// Lets this thread allocate while any thread captures.
    class relaxed_capture {
    public:
        relaxed_capture() { exchange(); }
        relaxed_capture(const relaxed_capture&) = delete;
        relaxed_capture& operator=(const relaxed_capture&) = delete;
        ~relaxed_capture() { exchange(); }

    private:
        void exchange() { cudaThreadExchangeStreamCaptureMode(&other_); }

        cudaStreamCaptureMode other_ = cudaStreamCaptureModeRelaxed;
    };

    void open() {
        using zeropp::detail::require_cuda;
        if (stream_ == nullptr) {
            require_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
        }
        if (pool_ == nullptr) {
            cudaMemPoolProps how{};
            how.allocType = cudaMemAllocationTypePinned;
            how.location.type = cudaMemLocationTypeDevice;
            require_cuda(cudaGetDevice(&how.location.id), "cudaGetDevice");
            require_cuda(cudaMemPoolCreate(&pool_, &how), "cudaMemPoolCreate");
        }
        // By default, a pool returns its free memory whenever a stream is waited for.
        std::uint64_t kept = UINT64_MAX;
        require_cuda(cudaMemPoolSetAttribute(pool_, cudaMemPoolAttrReleaseThreshold, &kept), "cudaMemPoolSetAttribute");
        exec_.emplace(stream_);
    }

    cudaStream_t stream_ = nullptr;
    cudaMemPool_t pool_ = nullptr;
    std::optional<zeropp::cuda_stream> exec_;
};
#else
using execution = zeropp::host_threads;
inline execution on(void* threads) { return threads == nullptr ? execution(1) : *static_cast<execution*>(threads); }

/// Executions of a communicator's calls. Keeps none: a pool may be destroyed, and another one made at its address.
struct executions {
    static execution on(void* threads) { return zeropp_c::on(threads); }
};

/// Work of the library beside its calls' streams, which the host does not have.
struct aside {
    template <class Work>
    void run(Work work) const {
        work(on(nullptr));
    }
};
#endif
using space = execution::space;

}  // namespace zeropp_c
