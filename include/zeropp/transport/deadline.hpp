#pragma once
/// \file
/// Deadlines of a transport's operations, and the errors when they pass.

#include <zeropp/core/error.hpp>
#include <zeropp/core/text.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <iterator>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace zeropp {

/// Options of a transport; its splits inherit them.
struct transport_options {
    /// Longest time for an operation, from its turn on its execution until it is complete, and for a split. A longer
    /// one throws timeout_error. Zero means no deadline.
    std::chrono::milliseconds timeout = std::chrono::milliseconds::zero();
};

namespace detail {

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

inline void require_timeout(std::string_view where, const transport_options& options) {
    if (options.timeout >= std::chrono::milliseconds::zero()) return;
    throw precondition_error(where, "a timeout of 0 ms, which is none, or more",
                             std::to_string(options.timeout.count()) + " ms");
}

/// Deadline of an operation that began at `begin`.
inline std::chrono::steady_clock::time_point
deadline_after(std::chrono::milliseconds timeout,
               std::chrono::steady_clock::time_point begin = std::chrono::steady_clock::now()) {
    const auto longest = std::chrono::duration_cast<std::chrono::milliseconds>(no_deadline - begin);
    return timeout == std::chrono::milliseconds::zero() || timeout >= longest ? no_deadline : begin + timeout;
}

enum class operation : std::uint8_t { all_gather, all_to_all, broadcast, split };

inline std::string name_of(operation o) {
    static constexpr const char* names[] = {"all_gather", "all_to_all", "broadcast", "split"};
    // A peer may send any number.
    const auto number = static_cast<std::size_t>(o);
    return number < std::size(names) ? names[number] : "operation " + std::to_string(number);
}

/// An operation, and the collective to which it belongs.
struct operation_in_call {
    detail::operation operation = operation::all_gather;
    std::size_t bytes = 0;
    /// Empty if no collective has begun. Then `call` is the operation's own number.
    short_text collective;
    std::uint64_t call = 0;
    /// Number of ranks that send in a broadcast, the first ones.
    int roots = 0;

    /// True if `rank` sends.
    bool sends(int rank) const { return operation != operation::broadcast || rank < roots; }
    /// First byte in `send` of the message to rank `to`. Only an all-to-all has a separate message for each rank.
    const std::byte* sent_to(int to, const std::byte* send) const {
        return operation == operation::all_to_all ? send + static_cast<std::size_t>(to) * bytes : send;
    }

    /// True if both operations move the same bytes, in whatever collective.
    bool same_move(const operation_in_call& other) const {
        return operation == other.operation && bytes == other.bytes && roots == other.roots;
    }

    /// Text such as "broadcast of 4096 bytes from 2 ranks", the roots.
    [[gnu::cold]] std::string move_text() const {
        std::string what = name_of(operation) + " of " + std::to_string(bytes) + " bytes";
        if (operation == operation::broadcast) {
            what += " from " + std::to_string(roots) + (roots == 1 ? " rank" : " ranks");
        }
        return what;
    }

    friend bool operator==(const operation_in_call&, const operation_in_call&) = default;

    /// Text such as "call 7, all_gather of 4096 bytes in quantized_all_gather".
    [[gnu::cold]] std::string text() const {
        const std::string what =
            "call " + std::to_string(call) + ", " + (operation == operation::split ? name_of(operation) : move_text());
        return collective == short_text() ? what : what + " in " + collective.str();
    }
};

/// Error of an operation that is incomplete after `timeout`. `missing` are world ranks not heard from.
[[gnu::cold]] inline timeout_error timed_out(std::string_view where, const operation_in_call& what,
                                             std::chrono::milliseconds timeout, std::span<const int> missing) {
    return timeout_error(std::string(where) + ": timeout of " + std::to_string(timeout.count()) + " ms in " +
                         what.text() + ": not heard from rank" + (missing.size() == 1 ? " " : "s ") + text_of(missing));
}

/// Names and numbers the collectives on one rank's transport, as `begin` reports them. An operation belongs to the
/// collective that began last on its transport or on an ancestor in the chain of splits. All the transport's ranks take
/// part in these collectives, so they agree about name and number. Copies share the log. Thread-safe.
class call_log {
public:
    /// Log of a split.
    [[gnu::noinline]] call_log split() const {
        call_log child;
        child.own_->above = own_;
        child.own_->root = &root();
        return child;
    }

    /// Numbers a collective. It counts even if the rank throws before its first operation.
    void begin(const short_text& collective) {
        entry& all = root();
        const std::lock_guard lock(all.mutex);
        own_->collective = collective;
        ++own_->calls;
        own_->began = ++all.begun;
    }

    /// The next operation on this transport, with the collective to which it belongs.
    operation_in_call next(operation what, std::size_t bytes, int roots = 0) {
        const std::lock_guard lock(root().mutex);
        ++own_->operations;
        const entry* last = own_.get();
        for (const entry* e = own_->above.get(); e != nullptr; e = e->above.get()) {
            if (e->began > last->began) last = e;
        }
        return {what, bytes, last->collective, last->began == 0 ? own_->operations : last->calls, roots};
    }

private:
    /// Collectives and operations of one transport.
    struct entry {
        short_text collective;
        std::uint64_t calls = 0;
        std::uint64_t began = 0;  // number of the last collective among those of all transports; 0: none has begun
        std::uint64_t operations = 0;
        std::shared_ptr<entry> above;  // of the transport from which this one was split
        entry* root = nullptr;         // of the first transport in that chain; nullptr there
        // The root's are shared by all transports that were split from it.
        std::mutex mutex;
        std::uint64_t begun = 0;
    };

    entry& root() const { return own_->root != nullptr ? *own_->root : *own_; }

    // The only member: transports are copied in many places, which programs compile.
    std::shared_ptr<entry> own_ = std::make_shared<entry>();
};

/// First failure of transports that were split from one another; afterwards all refuse to work. Thread-safe.
class first_failure {
public:
    /// Keeps `cause` if it is the first.
    void set(std::exception_ptr cause) {
        const std::lock_guard lock(mutex_);
        if (!cause_) cause_ = std::move(cause);
    }

    bool any() const {
        const std::lock_guard lock(mutex_);
        return cause_ != nullptr;
    }

    void rethrow() const {
        const std::lock_guard lock(mutex_);
        if (cause_) std::rethrow_exception(cause_);
    }

private:
    mutable std::mutex mutex_;
    std::exception_ptr cause_;
};

}  // namespace detail
}  // namespace zeropp
