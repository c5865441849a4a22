#pragma once
/// \file
/// Scratch memory of a GPU, and its allocation.

#include <zeropp/core/error.hpp>
#include <zeropp/core/view.hpp>
#include <zeropp/core/workspace.hpp>
#include <zeropp/execution/cuda_stream.hpp>

#include <cuda_runtime_api.h>

#include <concepts>
#include <cstddef>
#include <cstring>
#include <memory>

namespace zeropp {

namespace detail {
/// True if M allocates by the functions of memory resources of CCCL from 3.1 on, and of RMM from 25.12 on.
template <class M>
concept allocates_on_stream = requires(M& resource, cudaStream_t stream, void* memory, std::size_t bytes) {
    { resource.allocate(stream, bytes, workspace_alignment) } -> std::same_as<void*>;
    resource.deallocate(stream, memory, bytes, workspace_alignment);
};
/// True if M allocates by the functions of memory resources of CCCL before 3.1, and of RMM before 25.12.
template <class M>
concept allocates_async = requires(M& resource, cudaStream_t stream, void* memory, std::size_t bytes) {
    { resource.allocate_async(bytes, workspace_alignment, stream) } -> std::same_as<void*>;
    resource.deallocate_async(memory, bytes, workspace_alignment, stream);
};
}  // namespace detail

/// Type of an object that allocates memory of the current device in stream order, as the resources and resource_refs of
/// cuda::mr and RMM do:
///   `allocate(stream, bytes, alignment)`         memory for work that is enqueued on the stream later
///   `deallocate(stream, p, bytes, alignment)`    frees it once the work enqueued so far is complete
/// or, in older versions, `allocate_async(bytes, alignment, stream)` and `deallocate_async(p, bytes, alignment,
/// stream)`. The type of the parameter `stream` converts from cudaStream_t.
template <class M>
concept device_memory_resource = detail::allocates_on_stream<M> || detail::allocates_async<M>;

template <device_memory_resource M>
inline constexpr bool allocates_in<M, device_space> = true;

/// Owns scratch memory of the device that is current on construction.
template <>
class workspace<device_space> {
public:
    /// Allocates `bytes` bytes with cudaMalloc.
    explicit workspace(std::size_t bytes) : memory_(nullptr, {bytes}) {
        void* memory = nullptr;
        if (bytes != 0) detail::require_cuda(cudaMalloc(&memory, bytes), "cudaMalloc");
        memory_.reset(static_cast<std::byte*>(memory));
    }

    /// Allocates `bytes` bytes from `resource` for work on `stream`. The destructor frees them in the order of the
    /// stream. The CUDA stream and the resource must outlive the workspace. Does not synchronise.
    template <device_memory_resource Resource>
    workspace(std::size_t bytes, const cuda_stream& stream, Resource& resource)
        : memory_(nullptr,
                  {bytes, stream.native(), const_cast<void*>(static_cast<const void*>(std::addressof(resource))),
                   &give_back<Resource>}) {
        if (bytes == 0) return;
        void* memory = nullptr;
        if constexpr (detail::allocates_on_stream<Resource>) {
            memory = resource.allocate(stream.native(), bytes, workspace_alignment);
        } else {
            memory = resource.allocate_async(bytes, workspace_alignment, stream.native());
        }
        memory_.reset(static_cast<std::byte*>(memory));
    }

    device_view<std::byte> view() { return {memory_.get(), size()}; }
    device_view<const std::byte> view() const { return {memory_.get(), size()}; }

    /// Copies `bytes` bytes of host memory to the start of the workspace. Blocks until the copy is complete. If memory
    /// was allocated on a stream, the allocation must be complete.
    void assign(const void* from, std::size_t bytes) {
        if (bytes == 0) return;
        detail::require_cuda(cudaMemcpy(memory_.get(), from, bytes, cudaMemcpyHostToDevice), "cudaMemcpy");
        // From pageable memory, cudaMemcpy may return before the device has the bytes. Streams that do not wait for the
        // null stream, such as PyTorch's, would read old bytes.
        detail::require_cuda(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize");
    }

    /// Enqueues a copy of `bytes` bytes of pageable host memory to the start of the workspace, in the order of
    /// `stream`. On return, `from` has been read. Does not wait for the copy. Throws precondition_error while `stream`
    /// is captured, because each launch of the graph would read `from` again.
    void assign(const void* from, std::size_t bytes, const cuda_stream& stream) {
        if (bytes == 0) return;
        if (stream.is_captured()) {
            throw precondition_error("workspace", "a copy of host memory outside of a capture", "a captured stream");
        }
        // cudaMemcpyAsync reads pageable memory before it returns, unless the device reads host pages itself, in the
        // stream's turn. For such a device, the stream reads a copy of `from`, which a host function then frees.
        std::unique_ptr<std::byte[]> copy;
        if (stream.reads_host_pages()) {
            copy = std::make_unique<std::byte[]>(bytes);
            std::memcpy(copy.get(), from, bytes);
        }
        detail::require_cuda(
            cudaMemcpyAsync(memory_.get(), copy ? copy.get() : from, bytes, cudaMemcpyHostToDevice, stream.native()),
            "cudaMemcpyAsync");
        if (copy) {
            const cudaHostFn_t free_copy = [](void* read) { delete[] static_cast<std::byte*>(read); };
            detail::require_cuda(cudaLaunchHostFunc(stream.native(), free_copy, copy.release()), "cudaLaunchHostFunc");
        }
    }

private:
    struct release {
        std::size_t bytes;
        cudaStream_t stream = nullptr;
        void* resource = nullptr;
        void (*give_back)(const release&, void* memory) = nullptr;

        void operator()(std::byte* memory) const {
            if (give_back != nullptr) {
                give_back(*this, memory);
            } else {
                cudaFree(memory);
            }
        }
    };

    template <class Resource>
    static void give_back(const release& of, void* memory) {
        Resource& resource = *static_cast<Resource*>(of.resource);
        if constexpr (detail::allocates_on_stream<Resource>) {
            resource.deallocate(of.stream, memory, of.bytes, workspace_alignment);
        } else {
            resource.deallocate_async(memory, of.bytes, workspace_alignment, of.stream);
        }
    }

    /// Size of the workspace in bytes; 0 after a move.
    std::size_t size() const { return memory_ ? memory_.get_deleter().bytes : 0; }

    std::unique_ptr<std::byte, release> memory_;
};

}  // namespace zeropp
