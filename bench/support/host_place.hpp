#pragma once
/// \file
/// Ranks that compute on the processor.

#include "support/any_transport.hpp"

#include <zeropp/collective/pipeline.hpp>
#include <zeropp/core/view.hpp>
#include <zeropp/execution/host.hpp>
#include <zeropp/execution/host_queue.hpp>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

namespace zeropp_bench {

/// Memory and executions of a rank on the host. Benchmarks are templates over a place, which has
///
///   `space`, `transport`   the memory space, and a type that holds any transport of it
///   `array<T>`             owns elements there
///   `executions(chunks)`   for collectives of `chunks` chunks: `run(collective)` calls collective(pipeline) and
///                          blocks until its work is complete
struct host_place {
    using space = zeropp::host_space;
    using transport = any_host_transport;

    template <class T>
    class array {
    public:
        explicit array(std::size_t n = 0) : elements_(n) {}

        std::size_t size() const { return elements_.size(); }
        zeropp::host_view<T> view() { return {elements_.data(), elements_.size()}; }
        /// Ensures at least n elements, of any value.
        void reserve(std::size_t n) { elements_.resize(std::max(n, elements_.size())); }
        /// Calls f(elements), which sets all elements in host memory.
        template <class F>
        void write(F f) {
            f(std::span<T>(elements_));
        }
        /// Elements [offset, offset + count) in host memory.
        std::span<const T> read(std::size_t offset, std::size_t count) const {
            return std::span<const T>(elements_).subspan(offset, count);
        }

    private:
        std::vector<T> elements_;
    };

    /// Two queues if chunks may overlap, otherwise `host`.
    class executions {
    public:
        explicit executions(int chunks) : queues_(chunks != 1 ? std::make_unique<queues>() : nullptr) {}

        template <class Collective>
        void run(Collective collective) const {
            if (queues_) {
                collective(zeropp::pipeline<zeropp::host_queue>{queues_->intra_node, queues_->inter_node});
                queues_->intra_node.wait();
            } else {
                const zeropp::host at_once;
                collective(zeropp::pipeline<zeropp::host>{at_once, at_once});
            }
        }

    private:
        struct queues {
            zeropp::host_queue intra_node;
            zeropp::host_queue inter_node;
        };
        std::unique_ptr<queues> queues_;
    };
};

}  // namespace zeropp_bench
