#pragma once
/// \file
/// Agreement of threads on the ranks that are left after a failure.

#include <zeropp/transport/deadline.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace zeropp::detail {

/// Signs of life of one rank, from all threads that run its operations. Thread-safe.
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

    /// Notes a sign of life.
    void hear() { heard_ = clock::now(); }

    /// Notes that no thread of the rank will come again.
    void leave() { left_ = true; }

    /// Time from which the rank counts as dead unless it is heard: `timeout` after its last operation and `since`.
    clock::time_point dead_at(clock::time_point since, std::chrono::milliseconds timeout) const {
        if (left_) return clock::time_point::min();
        return deadline_after(timeout, operations_ != 0 ? clock::now() : std::max(since, heard_.load()));
    }

private:
    std::atomic<int> operations_ = 0;                      // threads of the rank that are in operations
    std::atomic<clock::time_point> heard_ = clock::now();  // when the last of them left its operation
    std::atomic<bool> left_ = false;
};

/// Agreement of a group's ranks on the survivors. Each rank calls `agree` at most once. Thread-safe.
class thread_agreement {
    using clock = std::chrono::steady_clock;

public:
    explicit thread_agreement(std::size_t ranks) : came_(ranks), excluded_(ranks) {}

    /// Returns the survivors in order, equal on all callers: the ranks that called before the agreement, except
    /// excluded ones. Blocks until every other rank is excluded or, by `dead_at(rank)`, dead. One caller runs
    /// `make(survivors)` before any returns. A later caller gets the survivors at once, and is none of them.
    template <class DeadAt, class Make>
    std::vector<int> agree(int rank, std::span<const int> excluded, DeadAt dead_at, Make make) {
        std::unique_lock lock(mutex_);
        if (!survivors_) {
            came_[static_cast<std::size_t>(rank)] = 1;
            for (const int r : excluded) excluded_[static_cast<std::size_t>(r)] = 1;
            changed_.notify_all();
        }
        while (!survivors_) {
            const auto complete = complete_at(dead_at);
            if (complete <= clock::now()) {
                std::vector<int> ranks = present();
                make(std::as_const(ranks));
                survivors_ = std::move(ranks);
                changed_.notify_all();
            } else if (complete == no_deadline) {
                changed_.wait(lock);
            } else {
                changed_.wait_until(lock, complete);
            }
        }
        return *survivors_;
    }

    /// Makes waiting ranks look again for dead ones.
    void wake() {
        {
            const std::lock_guard lock(mutex_);
        }
        changed_.notify_all();
    }

private:
    /// Time from which every rank has called, is excluded, or is dead.
    template <class DeadAt>
    clock::time_point complete_at(DeadAt dead_at) const {
        auto time = clock::time_point::min();
        for (std::size_t r = 0; r != came_.size(); ++r) {
            if (!came_[r] && !excluded_[r]) time = std::max(time, dead_at(static_cast<int>(r)));
        }
        return time;
    }

    std::vector<int> present() const {
        std::vector<int> ranks;
        for (std::size_t r = 0; r != came_.size(); ++r) {
            if (came_[r] && !excluded_[r]) ranks.push_back(static_cast<int>(r));
        }
        return ranks;
    }

    std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<char> came_;      // by rank
    std::vector<char> excluded_;  // by rank
    std::optional<std::vector<int>> survivors_;
};

}  // namespace zeropp::detail
