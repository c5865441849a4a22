#pragma once
/// \file
/// Accepts a cuda::std::span as an array in GPU memory, wherever a device_view can stand. For programs in which every
/// cuda::std::span refers to device memory. Needs nvcc and CCCL, which CUDA's toolkit has. Include it in all
/// translation units or in none, before a span is used.

#include <zeropp/core/view.hpp>

#include <cuda/std/span>

#include <cstddef>

namespace zeropp {

template <class T, std::size_t Extent>
inline constexpr bool is_device_array<cuda::std::span<T, Extent>> = true;

}  // namespace zeropp
