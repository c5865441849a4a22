#pragma once
/// \file
/// A stream and arrays on the emulated device. Compiled by nvcc, kernels are PTX, which tests/ptx executes.

#if !defined(__CUDACC__)
#include "simt/cuda_emulation.hpp"
#endif

#include "simt/cuda_doubles.hpp"

#include <zeropp/core/view.hpp>
#include <zeropp/execution/cuda_stream.hpp>
#include <zeropp/execution/cuda_workspace.hpp>

#include <algorithm>
#include <cstddef>
#include <vector>

namespace zeropp_test::kernels {}

namespace zeropp_test::simt {

using namespace zeropp_test::kernels;

/// A stream of its own, and the execution that borrows it.
class owned_stream {
public:
    /// Its device has this many multiprocessors, as far as the execution knows.
    explicit owned_stream(int multiprocessors = 4) : native_(create(multiprocessors)), exec_(native_) {}
    owned_stream(const owned_stream&) = delete;
    owned_stream& operator=(const owned_stream&) = delete;
    ~owned_stream() { cudaStreamDestroy(native_); }

    const zeropp::cuda_stream& exec() const { return exec_; }
    cudaStream_t native() const { return native_; }

private:
    static cudaStream_t create(int multiprocessors) {
        set_device(multiprocessors);
        cudaStream_t s = nullptr;
        zeropp::detail::require_cuda(cudaStreamCreate(&s), "cudaStreamCreate");
        return s;
    }

    cudaStream_t native_;
    zeropp::cuda_stream exec_;
};

/// n elements of device memory, `shift` elements behind a boundary of 256 bytes, and bytes on both sides that nobody
/// may write. With AddressSanitizer the memory ends where the array does, so that nobody can read them either.
template <class T>
class device_array {
public:
    explicit device_array(std::size_t n, std::size_t shift = 0) : n_(n), front_(256 + shift * sizeof(T)) {
        const std::vector<unsigned char> all(bytes(), untouched);
        zeropp::detail::require_cuda(cudaMalloc(&memory_, bytes()), "cudaMalloc");
        write_device(memory_, all.data(), bytes());
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

    void write(const std::vector<T>& values) { write_device(data(), values.data(), values.size() * sizeof(T)); }

    /// What the work that has run so far has left.
    std::vector<T> read() const {
        std::vector<T> values(n_);
        read_device(values.data(), data(), n_ * sizeof(T));
        return values;
    }

    /// Whether nothing was written outside the array.
    bool intact() const {
        std::vector<unsigned char> all(bytes());
        read_device(all.data(), memory_, bytes());
        const auto ok = [](unsigned char b) { return b == untouched; };
        const auto first = all.begin() + static_cast<std::ptrdiff_t>(front_);
        const auto last = first + static_cast<std::ptrdiff_t>(n_ * sizeof(T));
        return std::all_of(all.begin(), first, ok) && std::all_of(last, all.end(), ok);
    }

private:
    static constexpr unsigned char untouched = 0xa5;
#if defined(ZEROPP_TEST_ASAN)
    static constexpr std::size_t back = 0;
#else
    static constexpr std::size_t back = 64;
#endif

    std::size_t bytes() const { return front_ + n_ * sizeof(T) + back; }

    std::size_t n_;
    std::size_t front_;
    void* memory_ = nullptr;
};

}  // namespace zeropp_test::simt

/// The device of tests/kernels.
namespace zeropp_test {
namespace device = simt;
}
