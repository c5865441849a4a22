#pragma once
/// \file
/// Waiting for what must be asked.

#include <algorithm>
#include <chrono>
#include <thread>

namespace zeropp::detail {

/// The deadline of what may take as long as it takes.
constexpr std::chrono::steady_clock::time_point no_deadline = std::chrono::steady_clock::time_point::max();

/// Asks done() again and again until it returns true, with sparing use of the processor. For the first 200 us, in which
/// a short message arrives, it gives way between two questions; then it sleeps, each time for a quarter of the time
/// waited so far, at most 250 us. Giving way alone would not do: threads that ask in vain take the processor, and the
/// locks behind the question, from those that they wait for.
///
/// Returns false if the answer is still no when `deadline` has passed.
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
