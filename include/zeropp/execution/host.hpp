#pragma once
/// \file
/// Immediate execution on the calling thread.

#include <zeropp/execution/execution.hpp>

#include <cstddef>
#include <cstring>
#include <utility>

namespace zeropp {

/// Runs everything at once on the calling thread: a collective on `host{}` has finished when it returns, and throws
/// directly.
struct host {
    using space = host_space;
    /// Nothing is ever pending, so an event carries nothing.
    struct event {};

    template <class F>
    void enqueue(F&& work) const {
        std::forward<F>(work)();
    }
    /// Copies `bytes` from one place to another.
    void copy(void* to, const void* from, std::size_t bytes) const { std::memcpy(to, from, bytes); }
    /// The same: all memory here is the host's.
    void copy_to_host(void* to, const void* from, std::size_t bytes) const { std::memcpy(to, from, bytes); }
    event record() const { return {}; }
    void wait(const event&) const {}
    void wait() const {}
};

static_assert(host_execution<host>);

}  // namespace zeropp
