#pragma once
/// \file
/// The end of the overloads that bring a workspace of their own.

#include <zeropp/execution/execution.hpp>
#include <zeropp/transport/transport.hpp>

namespace zeropp::detail {

/// Runs enqueue() and blocks until `exec` has completed all its work, operations of `transport` among it, also when
/// enqueue() throws halfway: what it had enqueued by then still works in memory that is about to be freed.
template <execution Execution, class Transport, class Enqueue>
void run_to_completion(const Execution& exec, Transport& transport, Enqueue enqueue) {
    try {
        enqueue();
        wait_for(transport, exec);
    } catch (...) {
        // The first error is the one to report. The transport ends what may not end by itself; then the rest does.
        const auto quietly = [](auto wait) {
            try {
                wait();
            } catch (...) {
            }
        };
        quietly([&] { wait_for(transport, exec); });
        quietly([&] { exec.wait(); });
        throw;
    }
}

}  // namespace zeropp::detail
