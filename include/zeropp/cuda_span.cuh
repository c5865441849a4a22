#pragma once
/// \file
/// cuda::std::span as an array in a GPU's memory, wherever a device_view can stand. Needs CCCL, which CUDA's toolkit
/// has, and nvcc, which finds it; for programs whose cuda::std::spans are all of device memory. Include it in
/// all translation units or in none, before a span is used.

#include <zeropp/core/view.hpp>

#include <cuda/std/span>

#include <cstddef>

namespace zeropp {

template <class T, std::size_t Extent>
inline constexpr bool is_device_array<cuda::std::span<T, Extent>> = true;

}  // namespace zeropp
