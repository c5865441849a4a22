#pragma once
/// \file
/// Work on a GPU, in the order of a CUDA stream.

#include <zeropp/core/error.hpp>
#include <zeropp/core/view.hpp>
#include <zeropp/execution/execution.hpp>

#include <cuda_runtime_api.h>

#include <concepts>
#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace zeropp {

/// Exception: a call to CUDA's runtime failed. `code()` is CUDA's error.
class cuda_error : public error {
public:
    cuda_error(const std::string& call, cudaError_t code)
        : error(call + ": " + cudaGetErrorName(code) + ", " + cudaGetErrorString(code)), code_(code) {}

    cudaError_t code() const { return code_; }

private:
    cudaError_t code_;
};

namespace detail {
/// Throws cuda_error unless `code`, the result of `call`, is success. Clears CUDA's last error for later calls.
inline void require_cuda(cudaError_t code, const char* call) {
    if (code == cudaSuccess) return;
    cudaGetLastError();
    throw cuda_error(call, code);
}
}  // namespace detail

/// Execution that enqueues work on a CUDA stream, which the caller owns and keeps alive. Copies of a cuda_stream refer
/// to one stream.
///
/// Enqueueing allocates nothing, never synchronises and reads no results back. So collectives can be captured into a
/// CUDA graph if their transport can be captured. Events come from a pool, which grows to the largest number of events
/// that have existed at one time. In every call, the current device of the calling thread must be the stream's.
class cuda_stream {
    struct pool {
        std::mutex mutex;
        std::vector<cudaEvent_t> free;

        ~pool() {
            for (const cudaEvent_t e : free) cudaEventDestroy(e);
        }
    };

public:
    using space = device_space;

    /// A point in a stream's work. A default-constructed event is complete.
    class event {
    public:
        event() = default;
        event(event&& other) noexcept : pool_(std::move(other.pool_)), native_(std::exchange(other.native_, nullptr)) {}
        event& operator=(event&& other) noexcept {
            std::swap(pool_, other.pool_);
            std::swap(native_, other.native_);
            return *this;
        }
        ~event() {
            if (!native_) return;
            // Streams that already wait for this point do not need the CUDA event (cudaStreamWaitEvent). So another
            // event can take it at once.
            const std::lock_guard lock(pool_->mutex);
            pool_->free.push_back(native_);
        }

        /// Blocks the caller until the work before the event is complete.
        void wait() const {
            if (native_) detail::require_cuda(cudaEventSynchronize(native_), "cudaEventSynchronize");
        }

        /// True if the work before the event is complete.
        bool is_complete() const {
            if (!native_) return true;
            const cudaError_t found = cudaEventQuery(native_);
            if (found == cudaErrorNotReady) {
                cudaGetLastError();  // clears cudaErrorNotReady, which is no failure, for the caller's next check
                return false;
            }
            detail::require_cuda(found, "cudaEventQuery");
            return true;
        }

    private:
        friend class cuda_stream;
        event(std::shared_ptr<pool> p, cudaEvent_t native) : pool_(std::move(p)), native_(native) {}

        std::shared_ptr<pool> pool_;
        cudaEvent_t native_ = nullptr;
    };

    /// Borrows `stream`, which must be of the current device. From CUDA 12.8 on, throws precondition_error if it is
    /// not, unless the driver is too old to tell.
    explicit cuda_stream(cudaStream_t stream) : native_(stream), pool_(std::make_shared<pool>()) {
        int device = 0;
        detail::require_cuda(cudaGetDevice(&device), "cudaGetDevice");
#if CUDART_VERSION >= 12080
        int of_stream = device;
        const cudaError_t found = cudaStreamGetDevice(stream, &of_stream);
        if (found == cudaErrorCallRequiresNewerDriver) {
            cudaGetLastError();
        } else {
            detail::require_cuda(found, "cudaStreamGetDevice");
        }
        if (of_stream != device) {
            throw precondition_error("cuda_stream", "a stream of the current device, " + std::to_string(device),
                                     "one of device " + std::to_string(of_stream));
        }
#endif
        multiprocessors_ = attribute(cudaDevAttrMultiProcessorCount, device);
        reads_host_pages_ = attribute(cudaDevAttrPageableMemoryAccess, device) != 0;
    }

    /// Borrows the CUDA stream `stream.get()`, for instance of a cuda::stream_ref or a cuda::stream.
    template <class Stream>
        requires requires(const Stream& stream) {
            { stream.get() } -> std::same_as<cudaStream_t>;
        }
    explicit cuda_stream(const Stream& stream) : cuda_stream(stream.get()) {}

    /// The borrowed stream.
    cudaStream_t native() const { return native_; }

    /// Number of multiprocessors of the stream's device, from which kernels' grids get their size.
    int multiprocessors() const { return multiprocessors_; }
    /// True if the stream's device can read pageable host memory, as GH200 does, and others by HMM in Linux.
    bool reads_host_pages() const { return reads_host_pages_; }

    /// True while the stream is captured into a CUDA graph.
    bool is_captured() const {
        cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
        detail::require_cuda(cudaStreamIsCapturing(native_, &status), "cudaStreamIsCapturing");
        return status != cudaStreamCaptureStatusNone;
    }

    /// Enqueues a copy of `bytes` bytes within device memory.
    void copy(void* to, const void* from, std::size_t bytes) const {
        detail::require_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, native_), "cudaMemcpyAsync");
    }

    /// Enqueues a copy of `bytes` bytes from device to host memory. CUDA may block the caller until a copy to pageable
    /// memory is complete.
    void copy_to_host(void* to, const void* from, std::size_t bytes) const {
        detail::require_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, native_), "cudaMemcpyAsync");
    }

    /// An event that completes with the work enqueued so far.
    event record() const {
        event e(pool_, take());
        detail::require_cuda(cudaEventRecord(e.native_, native_), "cudaEventRecord");
        return e;
    }

    /// Makes work that is enqueued later start after `other`, an event of any cuda_stream. Does not block the caller.
    void wait(const event& other) const {
        if (other.native_) detail::require_cuda(cudaStreamWaitEvent(native_, other.native_, 0), "cudaStreamWaitEvent");
    }

    /// Blocks the caller until all work enqueued on the stream is complete.
    void wait() const { detail::require_cuda(cudaStreamSynchronize(native_), "cudaStreamSynchronize"); }

private:
    static int attribute(cudaDeviceAttr which, int device) {
        int value = 0;
        detail::require_cuda(cudaDeviceGetAttribute(&value, which, device), "cudaDeviceGetAttribute");
        return value;
    }

    cudaEvent_t take() const {
        {
            const std::lock_guard lock(pool_->mutex);
            if (!pool_->free.empty()) {
                const cudaEvent_t e = pool_->free.back();
                pool_->free.pop_back();
                return e;
            }
        }
        cudaEvent_t e = nullptr;
        detail::require_cuda(cudaEventCreateWithFlags(&e, cudaEventDisableTiming), "cudaEventCreateWithFlags");
        return e;
    }

    cudaStream_t native_;
    std::shared_ptr<pool> pool_;
    int multiprocessors_ = 0;
    bool reads_host_pages_ = false;
};

}  // namespace zeropp
