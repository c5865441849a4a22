#pragma once
/// \file
/// Launches kernels: trivially copyable function objects with a device operator(). `resident_blocks` is the number of a
/// kernel's thread blocks for which a multiprocessor must have registers.

#include <zeropp/codec/cuda/tuning.hpp>
#include <zeropp/core/math.hpp>
#include <zeropp/execution/cuda_stream.hpp>

#include <algorithm>
#include <cstddef>

#if !defined(__CUDACC__)
#include <functional>
#endif

namespace zeropp::detail {

/// Largest number of thread blocks in the y direction of a grid; kernels loop over further slots.
inline constexpr int most_blocks_y = 65535;

#if defined(__CUDACC__)
/// Defined nowhere: a build that calls it fails with this name.
__device__ void needs_denormals_compile_without_ftz_and_use_fast_math();
}  // namespace zeropp::detail
/// Value of a kernel's compile option, a constant once compiled; in LLVM's NVPTX back end, and so in nvcc and clang.
extern "C" __device__ int __nvvm_reflect(const char*);
namespace zeropp::detail {

template <class Kernel>
__global__ void __launch_bounds__(kernel_threads, Kernel::resident_blocks) run(const __grid_constant__ Kernel kernel) {
    // Flushed denormals differ from the host's bits, and no macro tells of -ftz=true.
    if (__nvvm_reflect("__CUDA_FTZ") != 0) needs_denormals_compile_without_ftz_and_use_fast_math();
    kernel();
}
#else
/// Without nvcc there are no launches: a program that emulates them (tests/simt) supplies this function.
void emulate_launch(dim3 grid, dim3 block, cudaStream_t stream, std::function<void()> kernel);
#endif

/// Number of the kernel's thread blocks that a multiprocessor holds at a time. Asked of the first device in use: a
/// process is taken to have equal devices.
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

/// All slots have an equal number of thread blocks, rounded down. With 16 for each slot, or 16 times as many as the
/// device holds, rounding leaves little of the device idle.
inline constexpr std::size_t hardly_rounded = 16;

/// Runs kernel() on a thread block for each tile of each slot, but on no more than the device holds at a time. Where
/// the slots cannot share these blocks equally, there are up to `hardly_rounded` times as many. Kernels loop over the
/// rest. On an H100, five times as many cost sums of 4-bit messages up to 17 % at 64 MB, and saved other kernels at
/// most 4 %. Throws cuda_error if the launch fails.
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
