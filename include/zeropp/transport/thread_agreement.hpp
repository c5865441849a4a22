#pragma once
/// \file
/// Agreement of threads on the ranks that are left after a failure.

#include <zeropp/transport/deadline.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

namespace zeropp::detail {

/// Record that tells if one rank is alive, written by all threads that run operations of the rank. Thread-safe.
class thread_presence {
    using clock = std::chrono::steady_clock;

public:
    /// Scope in which a thread of the rank is in an operation.
    class in_operation {
    public:
        explicit in_operation(thread_presence& p) : presence_(p) { ++presence_.operations_; }
        ~in_operation() {
            presence_.hear();
            --presence_.operations_;
        }
        in_operation(const in_operation&) = delete;
        in_operation& operator=(const in_operation&) = delete;

    private:
        thread_presence& presence_;
    };

    void hear() { heard_ = clock::now(); }

    /// Notes that no thread of the rank will call again.
    void leave() { left_ = true; }

    /// True if the rank has called `leave`. Also true if no thread of the rank is in an operation and the rank's last
    /// sign of life is `timeout` ago. The time counts from `since` at the earliest.
    bool is_dead(clock::time_point since, std::chrono::milliseconds timeout) const {
        return left_ || (operations_ == 0 && clock::now() >= deadline_after(timeout, std::max(since, heard_.load())));
    }

private:
    std::atomic<int> operations_ = 0;                      // number of the rank's threads in operations
    std::atomic<clock::time_point> heard_ = clock::now();  // time of the last sign of life
    std::atomic<bool> left_ = false;
};

/// Lets the ranks of a group agree on the survivors of a failure. Thread-safe.
class thread_agreement {
public:
    explicit thread_agreement(std::size_t ranks) : came_(ranks), excluded_(ranks) {}

    /// Returns the survivors in increasing order, equal on all callers: ranks that called `agree` before the agreement,
    /// except excluded ones. Blocks until each rank has called, is excluded, or is dead (`is_dead(rank)` is true). One
    /// caller runs `make(survivors)` before any call returns. A rank that calls after the agreement gets the survivors
    /// at once, and is none of them.
    template <class IsDead, class Make>
    std::vector<int> agree(int rank, std::span<const int> excluded, IsDead is_dead, Make make) {
        bool entered = false;
        poll_until([&] {
            const std::lock_guard lock(mutex_);
            if (agreed_) return true;
            if (!std::exchange(entered, true)) {
                came_[static_cast<std::size_t>(rank)] = 1;
                for (const int r : excluded) excluded_[static_cast<std::size_t>(r)] = 1;
            }
            std::vector<int> ranks;
            for (std::size_t r = 0; r != came_.size(); ++r) {
                if (excluded_[r]) continue;
                if (!came_[r] && !is_dead(static_cast<int>(r))) return false;
                if (came_[r]) ranks.push_back(static_cast<int>(r));
            }
            make(std::as_const(ranks));
            survivors_ = std::move(ranks);
            agreed_ = true;
            return true;
        });
        return survivors_;
    }

private:
    std::mutex mutex_;
    std::vector<char> came_;      // [r] != 0: rank r has called `agree`
    std::vector<char> excluded_;  // [r] != 0: a caller has excluded rank r
    bool agreed_ = false;
    std::vector<int> survivors_;
};

}  // namespace zeropp::detail
