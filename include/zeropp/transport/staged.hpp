#pragma once
/// \file
/// A host transport under device memory.

#include <zeropp/core/error.hpp>
#include <zeropp/execution/cuda_stream.hpp>
#include <zeropp/execution/host.hpp>
#include <zeropp/transport/adaptor.hpp>
#include <zeropp/transport/transport.hpp>

#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>
#include <span>
#include <utility>

namespace zeropp {

/// Moves device memory through `Transport`, which moves host memory: to a pinned buffer, between ranks, and back to the
/// device. So an MPI without support for CUDA serves GPUs.
///
/// Operations block the caller until the copy back is enqueued, because the host reads the data. The pinned buffers
/// grow to the largest operation and stay: run that one first if the hot path must not allocate.
template <transport_on<host> Transport>
class staged : public adaptor<Transport> {
public:
    explicit staged(Transport inner) : adaptor<Transport>(std::move(inner)) {}

    void all_gather(const cuda_stream& stream, const std::byte* send, std::byte* recv, std::size_t bytes) {
        const std::size_t all = static_cast<std::size_t>(this->size()) * bytes;
        down(stream, send, bytes);
        up_.reserve(all);
        this->inner().all_gather(host{}, down_.data(), up_.data(), bytes);
        up(stream, recv, all);
    }

    void all_to_all(const cuda_stream& stream, const std::byte* send, std::byte* recv, std::size_t bytes) {
        const std::size_t all = static_cast<std::size_t>(this->size()) * bytes;
        down(stream, send, all);
        up_.reserve(all);
        this->inner().all_to_all(host{}, down_.data(), up_.data(), bytes);
        up(stream, recv, all);
    }

    void broadcast(const cuda_stream& stream, const std::byte* send, std::byte* recv, std::size_t bytes, int roots)
        requires broadcasting_transport_on<Transport, host>
    {
        detail::require_roots("staged", roots, this->size());
        const std::size_t all = static_cast<std::size_t>(roots) * bytes;
        down(stream, send, this->rank() < roots ? bytes : 0);
        up_.reserve(all);
        this->inner().broadcast(host{}, down_.data(), up_.data(), bytes, roots);
        up(stream, recv, all);
    }

    /// See can_broadcast.
    template <execution E>
    bool broadcasts() const {
        return adaptor<Transport>::template broadcasts<host>();
    }

    staged split(std::span<const int> members) { return staged(this->inner().split(members)); }

    shrunk<staged> shrink(std::span<const int> excluded = {})
        requires shrinkable_transport<Transport>
    {
        auto [next, survivors] = this->inner().shrink(excluded);
        return {staged(std::move(next)), std::move(survivors)};
    }

private:
    /// Pinned host memory that never shrinks, and is freed after the work that uses it.
    class buffer {
    public:
        std::byte* data() { return memory_.get(); }

        /// Keeps the memory until the work before `event` is complete.
        void keep_until(cuda_stream::event event) { memory_.get_deleter().used = std::move(event); }
        /// Blocks until that work is complete.
        void wait() const { memory_.get_deleter().used.wait(); }

        /// Discards the contents if the buffer has to grow.
        void reserve(std::size_t bytes) {
            if (bytes <= size_) return;
            memory_.reset();
            size_ = 0;
            void* memory = nullptr;
            detail::require_cuda(cudaMallocHost(&memory, bytes), "cudaMallocHost");
            memory_.reset(static_cast<std::byte*>(memory));
            size_ = bytes;
        }

    private:
        struct release {
            cuda_stream::event used;

            void operator()(std::byte* memory) const {
                try {
                    used.wait();
                } catch (const cuda_error&) {  // A failed device runs no more work.
                }
                cudaFreeHost(memory);
            }
        };

        std::unique_ptr<std::byte, release> memory_;
        std::size_t size_ = 0;
    };

    /// Copies to `down_` and waits. First waits for the last operation's copy from `up_`, which may be on another
    /// stream.
    void down(const cuda_stream& stream, const std::byte* from, std::size_t bytes) {
        up_.wait();
        down_.reserve(bytes);
        copy(stream, down_.data(), from, bytes, cudaMemcpyDeviceToHost);
        stream.wait();
    }

    void up(const cuda_stream& stream, std::byte* to, std::size_t bytes) {
        copy(stream, to, up_.data(), bytes, cudaMemcpyHostToDevice);
        try {
            up_.keep_until(stream.record());
        } catch (const cuda_error&) {
            stream.wait();
            throw;
        }
    }

    static void copy(const cuda_stream& stream, void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
        detail::require_cuda(cudaMemcpyAsync(to, from, bytes, kind, stream.native()), "cudaMemcpyAsync");
    }

    buffer down_;
    buffer up_;
};

}  // namespace zeropp
