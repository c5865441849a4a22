#pragma once
/// \file
/// Polling with a deadline.

#include <algorithm>
#include <chrono>
#include <thread>

namespace zeropp::detail {

/// Deadline that never passes.
constexpr std::chrono::steady_clock::time_point no_deadline = std::chrono::steady_clock::time_point::max();

/// Calls done() until it returns true; returns false if it is still false after `deadline`. Yields between calls for
/// the first 200 us, in which a short message arrives. After that, sleeps for a quarter of the time waited so far, at
/// most 250 us. Yielding alone would take the processor, and locks inside done(), from the threads that are waited for.
template <class Done>
bool poll_until(Done done, std::chrono::steady_clock::time_point deadline = no_deadline) {
    using clock = std::chrono::steady_clock;
    constexpr clock::duration before_sleep = std::chrono::microseconds(200);
    constexpr clock::duration longest_sleep = std::chrono::microseconds(250);
    const clock::time_point start = clock::now();
    while (!done()) {
        const clock::time_point now = clock::now();
        if (now >= deadline) return false;
        const clock::duration waited = now - start;
        if (waited < before_sleep) {
            std::this_thread::yield();
        } else {
            std::this_thread::sleep_for(std::min(waited / 4, longest_sleep));
        }
    }
    return true;
}

}  // namespace zeropp::detail
