#pragma once
/// \file
/// The end of the overloads that bring a workspace of their own.

#include <zeropp/execution/execution.hpp>

namespace zeropp::detail {

/// Runs enqueue() and blocks until `exec` has completed all its work, also when enqueue() throws halfway: what it had
/// enqueued by then still works in memory that is about to be freed.
template <execution Execution, class Enqueue>
void run_to_completion(const Execution& exec, Enqueue enqueue) {
    try {
        enqueue();
    } catch (...) {
        try {
            exec.wait();
        } catch (...) {
            // The first error is the one to report.
        }
        throw;
    }
    exec.wait();
}

}  // namespace zeropp::detail
