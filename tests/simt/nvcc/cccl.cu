// What CCCL's types can stand for: a stream, memory resources, arrays.
#include "shipped.cuh"

#include <zeropp/cuda_span.cuh>
#include <zeropp/execution/cuda_workspace.hpp>

#include <cuda/std/span>
#include <cuda/stream_ref>

#include <concepts>
#include <cstddef>
#include <vector>

using namespace zeropp;

static_assert(std::constructible_from<cuda_stream, cudaStream_t> &&
              std::constructible_from<cuda_stream, cuda::stream_ref>);
static_assert(!std::convertible_to<cuda::stream_ref, cuda_stream>);

template <class T>
using span = cuda::std::span<T>;
static_assert(array_in<span<const float>, device_space> && array_in<const span<float>&, device_space>);
static_assert(mutable_array_in<span<float>&, device_space> && !mutable_array_in<span<const float>, device_space>);
static_assert(mutable_array_in<cuda::std::span<bfloat16, 8>, device_space>);
static_assert(!array_in<span<float>, host_space> && !array_in<std::vector<float>&, device_space>);
static_assert(std::same_as<decltype(as_view<device_space>(span<const float>())), device_view<const float>>);

/// As the concepts of cuda::mr have them: today's, and those before CCCL 3.1.
struct resource {
    void* allocate(cuda::stream_ref, std::size_t, std::size_t);
    void deallocate(cuda::stream_ref, void*, std::size_t, std::size_t) noexcept;
};
struct earlier_resource {
    void* allocate(std::size_t, std::size_t);
    void deallocate(void*, std::size_t, std::size_t);
    void* allocate_async(std::size_t, std::size_t, cuda::stream_ref);
    void deallocate_async(void*, std::size_t, std::size_t, cuda::stream_ref);
};
struct synchronous_resource {
    void* allocate(std::size_t, std::size_t);
    void deallocate(void*, std::size_t, std::size_t);
};
static_assert(device_memory_resource<resource> && device_memory_resource<earlier_resource>);
static_assert(!device_memory_resource<synchronous_resource>);
static_assert(std::constructible_from<workspace<device_space>, std::size_t, const cuda_stream&, resource&>);
static_assert(!std::constructible_from<workspace<device_space>, std::size_t, const cuda_stream&, resource>);

template struct shipped::decoded<block_integer<8, 256>, float>;
