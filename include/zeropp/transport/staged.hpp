#pragma once
/// \file
/// A transport of device memory over a host transport.

#include <zeropp/core/error.hpp>
#include <zeropp/execution/cuda_stream.hpp>
#include <zeropp/execution/host.hpp>
#include <zeropp/transport/adaptor.hpp>
#include <zeropp/transport/operation.hpp>
#include <zeropp/transport/transport.hpp>

#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>
#include <utility>

namespace zeropp {

/// A transport of device memory over `Transport`, which moves host memory. Bytes go to a pinned buffer, between ranks,
/// and back to the device. So an MPI without support for CUDA serves GPUs.
///
/// Operations block the caller until the copy back is enqueued, because the host reads the data. The pinned buffers
/// grow to the largest operation and stay: run the largest first if the hot path must not allocate. If an operation of
/// `Transport` fails, the buffers are never freed.
template <transport_on<host> Transport>
class staged : public adaptor<staged<Transport>, Transport> {
    using base = adaptor<staged, Transport>;

public:
    explicit staged(Transport inner) : base(std::move(inner)) {}

    void move(const cuda_stream& stream, const operation& what, const std::byte* send, std::byte* recv) {
        const int sent = what.kind == operation::all_to_all ? this->size() : what.sends(this->rank()) ? 1 : 0;
        const int received = what.kind == operation::broadcast ? what.roots : this->size();
        const std::size_t received_bytes = static_cast<std::size_t>(received) * what.bytes;
        down(stream, send, static_cast<std::size_t>(sent) * what.bytes);
        up_.reserve(received_bytes);
        try {
            base::move(host{}, what, down_.data(), up_.data());
        } catch (...) {
            // A failed transport, such as MPI's, may still read and write the buffers.
            down_.abandon();
            up_.abandon();
            throw;
        }
        up(stream, recv, received_bytes);
    }

    /// True if `Transport` can broadcast host memory.
    template <execution E>
    bool broadcasts() const {
        return base::template broadcasts<host>();
    }

private:
    /// Pinned host memory that never shrinks, and is freed after the work that uses it.
    class buffer {
    public:
        std::byte* data() { return memory_.get(); }

        /// Keeps the memory until the work before `event` is complete.
        void keep_until(cuda_stream::event event) { memory_.get_deleter().used = std::move(event); }
        /// Blocks until the work before the event of `keep_until` is complete.
        void wait() const { memory_.get_deleter().used.wait(); }

        /// Makes room for `bytes` bytes. Discards the contents if the buffer has to grow.
        void reserve(std::size_t bytes) {
            if (bytes <= size_) return;
            memory_.reset();
            size_ = 0;
            void* memory = nullptr;
            detail::require_cuda(cudaMallocHost(&memory, bytes), "cudaMallocHost");
            memory_.reset(static_cast<std::byte*>(memory));
            size_ = bytes;
        }

        /// Leaves the memory allocated until the program ends; the buffer is then empty.
        void abandon() {
            static_cast<void>(memory_.release());
            size_ = 0;
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

    /// Copies `bytes` bytes of device memory to the pinned buffer `down_`, and waits for the copy. First waits for the
    /// last copy out of the buffer `up_`, on any stream.
    void down(const cuda_stream& stream, const std::byte* from, std::size_t bytes) {
        up_.wait();
        down_.reserve(bytes);
        stream.copy_to_host(down_.data(), from, bytes);
        stream.wait();
    }

    void up(const cuda_stream& stream, std::byte* to, std::size_t bytes) {
        detail::require_cuda(cudaMemcpyAsync(to, up_.data(), bytes, cudaMemcpyHostToDevice, stream.native()),
                             "cudaMemcpyAsync");
        try {
            up_.keep_until(stream.record());
        } catch (const cuda_error&) {
            stream.wait();
            throw;
        }
    }

    buffer down_;
    buffer up_;
};

}  // namespace zeropp
