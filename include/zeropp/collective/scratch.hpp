#pragma once
/// \file
/// Scratch memory of a call: the caller's, or a workspace that the call allocates.

#include <zeropp/collective/pipeline.hpp>
#include <zeropp/core/view.hpp>
#include <zeropp/core/workspace.hpp>
#include <zeropp/execution/execution.hpp>
#include <zeropp/transport/transport.hpp>

#include <concepts>
#include <cstddef>
#include <type_traits>

namespace zeropp {

/// In place of scratch memory, for first use: the call allocates a workspace and blocks until its work is complete.
struct allocate_scratch {};

/// Scratch argument of a call in `Space`: memory, a memory resource, or `allocate_scratch`. A device_memory_resource
/// allocates and frees in the stream's order, so that the call does not block. With other resources and
/// `allocate_scratch` it blocks until its work is complete.
template <class R, class Space>
concept scratch_in = mutable_array_in<R, Space> || allocates_in<std::remove_reference_t<R>, Space> ||
    std::same_as<std::remove_cvref_t<R>, allocate_scratch>;

namespace detail {

/// Runs enqueue(). If it throws, blocks until the work of both executions is complete, operations of `transport`
/// included: enqueued work still uses memory that is about to be freed.
template <execution Execution, class Transport, class Enqueue>
void complete_on_error(const pipeline<Execution>& exec, Transport& transport, Enqueue enqueue) {
    try {
        enqueue();
    } catch (...) {
        // The first error is reported. The transport first ends operations that may not end alone; then the rest ends.
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

/// Runs enqueue() and blocks until `inside` has completed, and so all work of the call.
template <execution Execution, class Transport, class Enqueue>
void run_to_completion(const pipeline<Execution>& exec, Transport& transport, Enqueue enqueue) {
    complete_on_error(exec, transport, [&] {
        enqueue();
        wait_for(transport, exec.inside);
    });
}

/// Calls enqueue(memory) with the caller's `scratch`, or with bytes() bytes that last until `inside` has completed, and
/// so all work of the call.
template <execution Execution, class Transport, class Scratch, class Bytes, class Enqueue>
void with_scratch(const pipeline<Execution>& exec, Transport& transport, Scratch&& scratch, Bytes bytes,
                  Enqueue enqueue) {
    using space = typename Execution::space;
    using given = std::remove_cvref_t<Scratch>;
    const auto block = [&](workspace<space> own) { run_to_completion(exec, transport, [&] { enqueue(own.view()); }); };
    if constexpr (std::same_as<given, allocate_scratch>) {
        block(workspace<space>(bytes()));
    } else if constexpr (requires { workspace<space>(bytes(), exec.inside, scratch); }) {
        workspace<space> own(bytes(), exec.inside, scratch);
        if (overlaps_hops(exec)) join(exec);
        complete_on_error(exec, transport, [&] { enqueue(own.view()); });
    } else if constexpr (allocates_in<std::remove_reference_t<Scratch>, space>) {
        block(workspace<space>(bytes(), scratch));
    } else {
        enqueue(view<std::byte, space>(as_view<space>(scratch)));
    }
}

}  // namespace detail

}  // namespace zeropp
