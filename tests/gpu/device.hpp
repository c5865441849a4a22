#pragma once
/// \file
/// A stream and arrays on the GPU, for tests.

#include <zeropp/core/element.hpp>
#include <zeropp/core/view.hpp>
#include <zeropp/execution/cuda_stream.hpp>
#include <zeropp/execution/cuda_workspace.hpp>

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

namespace zeropp_test::kernels {}

namespace zeropp_test::gpu {

using namespace zeropp_test::kernels;
using zeropp::detail::require_cuda;

/// A stream of its own, which nothing synchronises with by accident, and the execution that borrows it.
class owned_stream {
public:
    /// Takes a number of multiprocessors, as the emulated device's stream does: a GPU has its own.
    explicit owned_stream(int = 0) : native_(create()), exec_(native_) {}
    owned_stream(const owned_stream&) = delete;
    owned_stream& operator=(const owned_stream&) = delete;
    ~owned_stream() { cudaStreamDestroy(native_); }

    const zeropp::cuda_stream& exec() const { return exec_; }
    cudaStream_t native() const { return native_; }

private:
    static cudaStream_t create() {
        cudaStream_t stream = nullptr;
        require_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
        return stream;
    }

    cudaStream_t native_;
    zeropp::cuda_stream exec_;
};

/// n elements of device memory, `shift` elements behind a boundary of 256 bytes, and bytes on both sides that nobody
/// may write. Elements start out as the same bytes: what should be written and is not is seen.
template <class T>
class device_array {
public:
    explicit device_array(std::size_t n, std::size_t shift = 0) : n_(n), front_(256 + shift * sizeof(T)) {
        require_cuda(cudaMalloc(&memory_, bytes()), "cudaMalloc");
        fill();
    }
    explicit device_array(const std::vector<T>& values, std::size_t shift = 0) : device_array(values.size(), shift) {
        write(values);
    }
    device_array(const device_array&) = delete;
    device_array& operator=(const device_array&) = delete;
    ~device_array() { cudaFree(memory_); }

    T* data() const { return reinterpret_cast<T*>(static_cast<std::byte*>(memory_) + front_); }
    std::size_t size() const { return n_; }
    zeropp::device_view<T> view() const { return {data(), n_}; }

    /// All bytes as they were at first.
    void fill() {
        const owned_stream stream;
        require_cuda(cudaMemsetAsync(memory_, untouched, bytes(), stream.native()), "cudaMemsetAsync");
        stream.exec().wait();
    }

    void write(const std::vector<T>& values) {
        move(data(), values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice);
    }

    /// What the work that is complete has left.
    std::vector<T> read() const {
        std::vector<T> values(n_);
        move(values.data(), data(), n_ * sizeof(T), cudaMemcpyDeviceToHost);
        return values;
    }

    /// Whether nothing was written outside the array.
    bool intact() const {
        std::vector<unsigned char> all(bytes());
        move(all.data(), memory_, bytes(), cudaMemcpyDeviceToHost);
        const auto ok = [](unsigned char b) { return b == untouched; };
        const auto first = all.begin() + static_cast<std::ptrdiff_t>(front_);
        const auto last = first + static_cast<std::ptrdiff_t>(n_ * sizeof(T));
        return std::all_of(all.begin(), first, ok) && std::all_of(last, all.end(), ok);
    }

private:
    static constexpr unsigned char untouched = 0xa5;
    static constexpr std::size_t back = 256;

    static void move(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
        const owned_stream stream;
        require_cuda(cudaMemcpyAsync(to, from, bytes, kind, stream.native()), "cudaMemcpyAsync");
        stream.exec().wait();
    }

    std::size_t bytes() const { return front_ + n_ * sizeof(T) + back; }

    std::size_t n_;
    std::size_t front_;
    void* memory_ = nullptr;
};

/// Empty, as the emulated device's without a fault: an error of a GPU is thrown where it is found.
inline std::string device_fault() { return {}; }

}  // namespace zeropp_test::gpu

/// The device of tests/kernels.
namespace zeropp_test {
namespace device = gpu;
}
