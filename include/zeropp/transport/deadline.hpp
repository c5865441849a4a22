#pragma once
/// \file
/// Deadlines of a transport's operations, and the error when one passes.

#include <zeropp/core/error.hpp>
#include <zeropp/core/text.hpp>

#include <algorithm>
#include <chrono>
#include <span>
#include <string>
#include <string_view>
#include <thread>

namespace zeropp {

/// Options of a transport, which its splits and survivors' transports keep.
struct transport_options {
    /// Longest time for an operation, from its turn on its execution until its end, and for a split. After that time,
    /// the operation or split throws timeout_error. Zero means no deadline.
    std::chrono::milliseconds timeout = std::chrono::milliseconds::zero();
};

namespace detail {

constexpr std::chrono::steady_clock::time_point no_deadline = std::chrono::steady_clock::time_point::max();

/// Calls `done()` until it returns true. Returns false if `done()` is still false after `deadline`. Yields between
/// calls for the first 200 us, in which a short message arrives. After that, sleeps for a quarter of the time waited so
/// far, at most 250 us. Yielding alone would keep the processor, and locks inside `done()`, from threads that must act.
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

inline void require_timeout(std::string_view where, const transport_options& options) {
    if (options.timeout >= std::chrono::milliseconds::zero()) return;
    throw precondition_error(where, "a timeout of 0 ms, which is none, or more",
                             std::to_string(options.timeout.count()) + " ms");
}

/// Deadline of an operation that began at `begin`; `no_deadline` if `timeout` is 0 or beyond the clock's range.
inline std::chrono::steady_clock::time_point
deadline_after(std::chrono::milliseconds timeout,
               std::chrono::steady_clock::time_point begin = std::chrono::steady_clock::now()) {
    const auto longest = std::chrono::duration_cast<std::chrono::milliseconds>(no_deadline - begin);
    return timeout == std::chrono::milliseconds::zero() || timeout >= longest ? no_deadline : begin + timeout;
}

/// Error of the transport with the name `where` after `timeout` in the operation or function `what`, for the reason
/// `why`.
[[gnu::cold]] inline timeout_error timed_out(std::string_view where, std::chrono::milliseconds timeout,
                                             std::string_view what, std::string_view why) {
    std::string text(where);
    text.append(": timeout of ").append(std::to_string(timeout.count())).append(" ms in ").append(what);
    return timeout_error(text.append(": ").append(why));
}

/// Text of the reason for a timeout: no message has come from the world ranks `missing`.
[[gnu::cold]] inline std::string not_heard_from(std::span<const int> missing) {
    return (missing.size() == 1 ? "not heard from rank " : "not heard from ranks ") + text_of(missing);
}

}  // namespace detail
}  // namespace zeropp
