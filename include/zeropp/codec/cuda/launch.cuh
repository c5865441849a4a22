#pragma once
/// \file
/// Launches of kernels. A kernel is a trivially copyable function object with a device operator(). Its member
/// `resident_blocks` is the number of thread blocks for which a multiprocessor must have registers.

#include <zeropp/codec/cuda/tuning.hpp>
#include <zeropp/core/math.hpp>
#include <zeropp/execution/cuda_stream.hpp>

#include <algorithm>
#include <cstddef>

#if !defined(__CUDACC__)
#include <functional>
#endif

namespace zeropp::detail {

/// Largest extent of a grid in the y direction, in thread blocks. Each row of thread blocks takes one slot at a time,
/// so kernels loop over further slots.
inline constexpr int most_blocks_y = 65535;

#if defined(__CUDACC__)
/// A function without a definition: a build that flushes denormals calls it, and fails with its name as the error.
__device__ void needs_denormals_compile_without_ftz_and_use_fast_math();
}  // namespace zeropp::detail
/// Returns the value of the compile option with the given name, as a constant. A builtin of LLVM's NVPTX back end, and
/// so of nvcc and clang.
extern "C" __device__ int __nvvm_reflect(const char*);
namespace zeropp::detail {

template <class Kernel>
__global__ void __launch_bounds__(kernel_threads, Kernel::resident_blocks) run(const __grid_constant__ Kernel kernel) {
    // With -ftz=true, results differ from the host's bits, and no macro tells of this option.
    if (__nvvm_reflect("__CUDA_FTZ") != 0) needs_denormals_compile_without_ftz_and_use_fast_math();
    kernel();
}
#else
/// Emulates a launch: runs `kernel` on the host for each thread of the grid. Used without nvcc; a program that emulates
/// kernels (tests/simt) defines it.
void emulate_launch(dim3 grid, dim3 block, cudaStream_t stream, std::function<void()> kernel);
#endif

/// Number of thread blocks of `Kernel` that a multiprocessor holds at a time, as CUDA computes it. The first call asks
/// for the current device; other devices of the process are taken to be equal.
template <class Kernel>
int resident_blocks() {
#if defined(__CUDACC__)
    static const int found = [] {
        int blocks = 0;
        require_cuda(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, &run<Kernel>, kernel_threads, 0),
                     "cudaOccupancyMaxActiveBlocksPerMultiprocessor");
        return std::max(blocks, 1);
    }();
    return found;
#else
    if constexpr (requires { Kernel::resident_blocks; }) return Kernel::resident_blocks;
    return 1;
#endif
}

/// Bound for a grid with several slots: 16 thread blocks for each slot, or 16 times as many in all as the device holds
/// at a time. Slots get equal numbers of thread blocks, rounded down. At this bound, about a sixteenth of the device is
/// idle at most.
inline constexpr std::size_t hardly_rounded = 16;

/// Enqueues `kernel` on `stream`, with a thread block for each of `tiles` tiles of each slot, but no more than the
/// device holds at a time. If slots cannot share that number equally, the limit is up to `hardly_rounded` times as
/// high. So kernels must loop over further tiles and slots. A limit five times as high, on an H100, slowed sums of
/// 4-bit messages by up to 17 % at 64 MB. It saved other kernels at most 4 %. Throws cuda_error if the launch fails.
template <class Kernel>
void launch(const cuda_stream& stream, int slots, std::size_t tiles, const Kernel& kernel) {
    if (slots == 0 || tiles == 0) return;
    const auto rows = static_cast<std::size_t>(std::min(slots, most_blocks_y));
    const auto fill = static_cast<std::size_t>(std::max(stream.multiprocessors() * resident_blocks<Kernel>(), 1));
    const std::size_t times = fill % rows == 0 ? 1 : std::min(ceil_div(hardly_rounded * rows, fill), hardly_rounded);
    const std::size_t most = std::max<std::size_t>(times * fill / rows, 1);
    const dim3 grid(static_cast<unsigned>(std::min(tiles, most)), static_cast<unsigned>(rows));
    const dim3 block(kernel_threads);
#if defined(__CUDACC__)
    void* arguments[] = {const_cast<Kernel*>(&kernel)};
    require_cuda(
        cudaLaunchKernel(reinterpret_cast<const void*>(&run<Kernel>), grid, block, arguments, 0, stream.native()),
        "cudaLaunchKernel");
#else
    emulate_launch(grid, block, stream.native(), kernel);
#endif
}

}  // namespace zeropp::detail
