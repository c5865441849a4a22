#pragma once
/// \file
/// Times of kernels beside copies of equally many bytes, without help of the L2 cache.

#include "measure.hpp"

#include <zeropp/cuda.cuh>

#include <algorithm>
#include <cstddef>
#include <vector>

namespace zeropp_bench {

using zeropp::detail::require_cuda;

/// Device memory and stream for all cases.
struct bed {
    zeropp::workspace<zeropp::device_space> tensors;
    zeropp::workspace<zeropp::device_space> messages;
    zeropp::workspace<zeropp::device_space> outputs;
    std::size_t bytes;  // of each
    std::size_t l2_bytes;
    cudaStream_t native;
    zeropp::cuda_stream stream;

    bed(std::size_t n, std::size_t l2, cudaStream_t s)
        : tensors(n), messages(n), outputs(n), bytes(n), l2_bytes(l2), native(s), stream(s) {}

    /// Number of buffer sets for launches that move `moved` bytes. Together they exceed four times the L2 cache.
    std::size_t sets(std::size_t moved) const { return 4 * l2_bytes / moved + 1; }
};

/// Address of set `set` of buffers of `bytes` bytes.
inline std::byte* at(zeropp::workspace<zeropp::device_space>& memory, std::size_t set, std::size_t bytes) {
    return memory.view().data() + set * zeropp::round_up(bytes, 256);
}

inline double median(std::vector<double> x) {
    std::nth_element(x.begin(), x.begin() + static_cast<std::ptrdiff_t>(x.size() / 2), x.end());
    return x[x.size() / 2];
}

/// Sets the times of `r`, which has its bytes. launch(set) enqueues the kernel on one of `sets` sets of buffers.
///
/// Kernel and copy alternate, so that both see equal clocks. A measurement has several launches, to be long beside the
/// gap between events. A large copy comes first, so that the processor runs ahead of the GPU.
template <class Launch>
void time_beside_copy(bed& b, std::size_t sets, int repetitions, row& r, Launch launch) {
    const std::size_t moved = r.bytes_read + r.bytes_written;
    const std::size_t copied = std::max<std::size_t>(moved / 2 / 16 * 16, 16);
    r.launches = static_cast<int>(std::clamp<std::size_t>((std::size_t{1} << 30) / moved, 1, 32));
    std::size_t next = 0;
    const auto some = [&](auto enqueue) {
        for (int i = 0; i != r.launches; ++i) enqueue(next++ % sets);
    };
    const auto kernels = [&] { some([&](std::size_t set) { launch(set); }); };
    const auto copies = [&] {
        some([&](std::size_t set) {
            require_cuda(cudaMemcpyAsync(at(b.outputs, set, copied), at(b.tensors, set, copied), copied,
                                         cudaMemcpyDeviceToDevice, b.native),
                         "cudaMemcpyAsync");
        });
    };
    std::vector<cudaEvent_t> events(2 * static_cast<std::size_t>(repetitions) + 1);
    for (cudaEvent_t& e : events) require_cuda(cudaEventCreate(&e), "cudaEventCreate");
    const auto record = [&](std::size_t i) { require_cuda(cudaEventRecord(events[i], b.native), "cudaEventRecord"); };

    for (std::size_t set = 0; set != sets; ++set) launch(set);
    copies();
    b.stream.copy(b.outputs.view().data(), b.tensors.view().data(), b.bytes);
    kernels();
    copies();
    record(0);
    for (std::size_t i = 1; i != events.size(); i += 2) {
        kernels();
        record(i);
        copies();
        record(i + 1);
    }
    b.stream.wait();

    std::vector<double> kernel_seconds;
    std::vector<double> copy_seconds;
    for (std::size_t i = 1; i != events.size(); ++i) {
        float milliseconds = 0;
        require_cuda(cudaEventElapsedTime(&milliseconds, events[i - 1], events[i]), "cudaEventElapsedTime");
        (i % 2 == 1 ? kernel_seconds : copy_seconds).push_back(static_cast<double>(milliseconds) * 1e-3 / r.launches);
    }
    for (const cudaEvent_t e : events) require_cuda(cudaEventDestroy(e), "cudaEventDestroy");
    r.seconds_median = median(kernel_seconds);
    r.seconds_least = *std::min_element(kernel_seconds.begin(), kernel_seconds.end());
    r.seconds_most = *std::max_element(kernel_seconds.begin(), kernel_seconds.end());
    r.copy_bytes_per_second = 2 * static_cast<double>(copied) / median(copy_seconds);
}

}  // namespace zeropp_bench
