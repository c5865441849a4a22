#pragma once
/// \file
/// What nvcc supplies as language, for g++ and clang, so that they compile kernels unchanged: include it before any
/// .cuh. Kernels then run on the processor (cuda_emulation.cpp), each CUDA thread a fiber.
///
/// Stricter than a GPU: what CUDA leaves undefined (a lane that a shuffle names and that went elsewhere, a barrier that
/// some threads never reach) is a fault with a text, and never a hang.

#if defined(__CUDACC__)
#error "this header stands in for nvcc"
#endif

#include <cuda_runtime_api.h>

// A variable that a block shares is one variable. Blocks run one after the other.
#undef __shared__
#define __shared__ static

#include <cstdint>
#include <cstring>
#include <functional>
#include <source_location>
#include <string>
#include <type_traits>

// Plain variables: one device runs one thread at a time, whichever thread of the program drives it, and the scheduler
// sets them before it lets a CUDA thread go on.
inline uint3 threadIdx{};
inline uint3 blockIdx{};
inline dim3 blockDim;
inline dim3 gridDim;

namespace zeropp_test::simt {

/// Runs kernel() once for each thread of the grid. Returns what was wrong with it; "" if nothing. Every other call
/// takes threads and blocks in the opposite order. Not for concurrent use.
std::string run_grid(dim3 grid, dim3 block, const std::function<void()>& kernel);

/// The lane that a shuffle reads from: the lane's own number exclusive-or `distance`, or `distance` more.
enum class direction { exclusive_or, down };

/// Called from a kernel: waits for the lanes that `mask` names and returns the value of the lane `distance` away, or
/// its own value if that is not in the warp.
std::uint64_t exchange(unsigned mask, std::uint64_t value, int distance, direction to,
                       const std::source_location& where);

template <class T>
T shuffled(unsigned mask, T value, int distance, direction to, const std::source_location& where) {
    static_assert(std::is_arithmetic_v<T> && sizeof(T) <= 8);
    std::uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof(T));
    bits = exchange(mask, bits, distance, to, where);
    std::memcpy(&value, &bits, sizeof(T));
    return value;
}

/// Called from a kernel: waits for all threads of the block, or of the warp.
void meet_block(const std::source_location& where);
void meet_warp(unsigned mask, const std::source_location& where);

}  // namespace zeropp_test::simt

template <class T>
T __shfl_xor_sync(unsigned mask, T value, int distance,
                  const std::source_location& where = std::source_location::current()) {
    return zeropp_test::simt::shuffled(mask, value, distance, zeropp_test::simt::direction::exclusive_or, where);
}

template <class T>
T __shfl_down_sync(unsigned mask, T value, int distance,
                   const std::source_location& where = std::source_location::current()) {
    return zeropp_test::simt::shuffled(mask, value, distance, zeropp_test::simt::direction::down, where);
}

inline void __syncwarp(unsigned mask = 0xffffffffu,
                       const std::source_location& where = std::source_location::current()) {
    zeropp_test::simt::meet_warp(mask, where);
}

inline void __syncthreads(const std::source_location& where = std::source_location::current()) {
    zeropp_test::simt::meet_block(where);
}

/// No other thread runs meanwhile.
inline unsigned atomicOr(unsigned* to, unsigned bits) {
    const unsigned before = *to;
    *to = before | bits;
    return before;
}

template <class T>
T __ldg(const T* from) {
    return *from;
}
