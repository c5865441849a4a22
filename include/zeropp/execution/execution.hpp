#pragma once
/// \file
/// The execution concept: where work runs, and in what order.

#include <zeropp/core/view.hpp>

#include <concepts>

namespace zeropp {

/// Work enqueued on one execution runs in order; events order it against other executions of the same type.
///   `space`       the memory that its work reads and writes
///   `record()`    an event that is complete when all work enqueued so far is
///   `wait(event)` later work on this execution starts after the event; does not block the caller
///   `wait()`      blocks the caller until all enqueued work is complete; throws what that work threw
template <class E>
concept execution = requires(const E& exec, const typename E::event& event) {
    typename E::space;
    { exec.record() } -> std::same_as<typename E::event>;
    exec.wait(event);
    exec.wait();
};

/// An execution that runs host functions: `enqueue(f)` runs f() in its turn.
template <class E>
concept host_execution = execution<E> && std::same_as<typename E::space, host_space> &&
    requires(const E& exec, void (*work)()) {
    exec.enqueue(work);
};

}  // namespace zeropp
