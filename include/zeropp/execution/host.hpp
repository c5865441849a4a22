#pragma once
/// \file
/// Immediate execution on the calling thread.

#include <zeropp/execution/execution.hpp>

#include <cstddef>
#include <cstring>
#include <utility>

namespace zeropp {

/// Runs everything at once on the calling thread. A collective on `host{}` has finished when it returns, and throws
/// directly.
struct host {
    using space = host_space;
    /// Empty, since no work is ever pending.
    struct event {};

    template <class F>
    void enqueue(F&& work) const {
        std::forward<F>(work)();
    }
    /// Copies `bytes` bytes of host memory.
    void copy(void* to, const void* from, std::size_t bytes) const { std::memcpy(to, from, bytes); }
    /// Copies `bytes` bytes of host memory, which is the only memory here.
    void copy_to_host(void* to, const void* from, std::size_t bytes) const { std::memcpy(to, from, bytes); }
    event record() const { return {}; }
    void wait(const event&) const {}
    void wait() const {}
};

static_assert(host_execution<host>);

}  // namespace zeropp
