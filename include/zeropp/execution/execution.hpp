#pragma once
/// \file
/// The execution concept: where work runs, and in which order.

#include <zeropp/core/view.hpp>

#include <concepts>
#include <cstddef>

namespace zeropp {

/// Type of an object that runs enqueued work in order. Events order this work and the work of other executions of one
/// type.
///   `space`       type of the memory space in which work reads and writes: host_space or device_space
///   `copy(to, from, bytes)`  enqueues a copy of `bytes` bytes within that memory
///   `record()`    returns an `event` that is complete when all work enqueued so far is complete
///   `wait(event)` makes work enqueued later start after the event; does not block the caller
///   `wait()`      blocks the caller until all enqueued work is complete; throws the exceptions of that work
template <class E>
concept execution =
    requires(const E& exec, const typename E::event& event, std::byte* to, const std::byte* from, std::size_t bytes) {
        typename E::space;
        exec.copy(to, from, bytes);
        { exec.record() } -> std::same_as<typename E::event>;
        exec.wait(event);
        exec.wait();
    };

/// An execution in host memory that also runs functions: `enqueue(f)` runs f() after all work enqueued before.
template <class E>
concept host_execution = execution<E> && std::same_as<typename E::space, host_space> &&
                         requires(const E& exec, void (*work)()) { exec.enqueue(work); };

}  // namespace zeropp
