#pragma once
/// \file
/// The workspace of a call: the caller's, or one of its own.

#include <zeropp/collective/pipeline.hpp>
#include <zeropp/core/view.hpp>
#include <zeropp/core/workspace.hpp>
#include <zeropp/execution/execution.hpp>
#include <zeropp/transport/transport.hpp>

#include <concepts>
#include <cstddef>
#include <type_traits>

namespace zeropp {

/// In place of scratch memory, for first use: the call allocates a workspace of its own, and blocks until it is
/// complete.
struct allocate_scratch {};

/// Scratch memory of a call in `Space`.
template <class R, class Space>
concept scratch_in = mutable_array_in<R, Space> || std::same_as<std::remove_cvref_t<R>, allocate_scratch>;

namespace detail {

/// Runs enqueue() and blocks until its work is complete, operations of `transport` among it, which is when `inside` has
/// completed all of its; or both executions, when enqueue() throws halfway: what it had enqueued by then still works in
/// memory that is about to be freed.
template <execution Execution, class Transport, class Enqueue>
void run_to_completion(const pipeline<Execution>& exec, Transport& transport, Enqueue enqueue) {
    try {
        enqueue();
        wait_for(transport, exec.inside);
    } catch (...) {
        // The first error is the one to report. The transport ends what may not end by itself; then the rest does.
        const auto quietly = [](auto wait) {
            try {
                wait();
            } catch (...) {
            }
        };
        const auto end = [&](const Execution& e) {
            quietly([&] { wait_for(transport, e); });
            quietly([&] { e.wait(); });
        };
        end(exec.inside);
        if (overlaps_hops(exec)) end(exec.across);
        throw;
    }
}

/// enqueue(memory), where memory is the caller's scratch, or `bytes()` bytes that last until all work is complete.
template <execution Execution, class Transport, class Scratch, class Bytes, class Enqueue>
void with_scratch(const pipeline<Execution>& exec, Transport& transport, Scratch&& scratch, Bytes bytes,
                  Enqueue enqueue) {
    using space = typename Execution::space;
    if constexpr (std::same_as<std::remove_cvref_t<Scratch>, allocate_scratch>) {
        workspace<space> own(bytes());
        run_to_completion(exec, transport, [&] { enqueue(own.view()); });
    } else {
        enqueue(view<std::byte, space>(as_view<space>(scratch)));
    }
}

}  // namespace detail

}  // namespace zeropp
