#pragma once
/// \file
/// Ranks that compute on a GPU.

#include <zeropp/collective/pipeline.hpp>
#include <zeropp/core/view.hpp>
#include <zeropp/execution/cuda_stream.hpp>
#include <zeropp/execution/cuda_workspace.hpp>
#include <zeropp/transport/any.hpp>
#include <zeropp/transport/transport.hpp>

#include <cuda_runtime_api.h>

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

namespace zeropp_bench {

/// A stream of the current device, and the execution that borrows it.
class owned_stream {
public:
    owned_stream() : native_(create()), exec_(native_) {}
    owned_stream(const owned_stream&) = delete;
    owned_stream& operator=(const owned_stream&) = delete;
    ~owned_stream() { cudaStreamDestroy(native_); }

    const zeropp::cuda_stream& exec() const { return exec_; }

private:
    static cudaStream_t create() {
        cudaStream_t stream = nullptr;
        zeropp::detail::require_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
                                     "cudaStreamCreateWithFlags");
        return stream;
    }

    cudaStream_t native_;
    zeropp::cuda_stream exec_;
};

/// A place (see host_place) on the calling thread's current device.
struct cuda_place {
    using space = zeropp::device_space;
    using transport = zeropp::any_transport<zeropp::cuda_stream>;

    template <class T>
    class array {
    public:
        explicit array(std::size_t n = 0) : size_(n), memory_(n * sizeof(T)) {}

        std::size_t size() const { return size_; }
        zeropp::device_view<T> view() { return {reinterpret_cast<T*>(memory_.view().data()), size_}; }
        void reserve(std::size_t n) {
            if (n > size_) *this = array(n);
        }
        template <class F>
        void write(F f) {
            std::vector<T> elements(size_);
            f(std::span<T>(elements));
            const owned_stream stream;
            zeropp::detail::require_cuda(cudaMemcpyAsync(view().data(), elements.data(), size_ * sizeof(T),
                                                         cudaMemcpyHostToDevice, stream.exec().native()),
                                         "cudaMemcpyAsync");
            stream.exec().wait();
        }
        std::vector<T> read(std::size_t offset, std::size_t count) {
            std::vector<T> elements(count);
            const owned_stream stream;
            stream.exec().copy_to_host(elements.data(), view().data() + offset, count * sizeof(T));
            stream.exec().wait();
            return elements;
        }

    private:
        std::size_t size_;
        zeropp::workspace<zeropp::device_space> memory_;
    };

    /// Two streams if chunks may overlap, otherwise one.
    class executions {
    public:
        explicit executions(int chunks) {
            if (chunks != 1) inter_node_.emplace();
        }

        template <class Collective>
        void run(Collective collective) const {
            const zeropp::cuda_stream& intra_node = intra_node_.exec();
            collective(
                zeropp::pipeline<zeropp::cuda_stream>{intra_node, inter_node_ ? inter_node_->exec() : intra_node});
            intra_node.wait();
        }

    private:
        owned_stream intra_node_;
        std::optional<owned_stream> inter_node_;
    };
};

static_assert(zeropp::transport_on<cuda_place::transport, zeropp::cuda_stream>);

}  // namespace zeropp_bench
