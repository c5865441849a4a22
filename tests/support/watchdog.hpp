#pragma once
/// \file
/// Ends a test that hangs, and names it.

#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

namespace zeropp_test {

/// Aborts the program unless destroyed within `limit`. Nothing less ends ranks that wait for each other: a thread
/// cannot be interrupted.
class watchdog {
public:
    watchdog(std::chrono::milliseconds limit, std::string what)
        : limit_(limit), what_(std::move(what)), thread_([this] { wait(); }) {}

    watchdog(const watchdog&) = delete;
    watchdog& operator=(const watchdog&) = delete;

    ~watchdog() {
        {
            const std::lock_guard lock(mutex_);
            done_ = true;
        }
        changed_.notify_one();
        thread_.join();
    }

private:
    void wait() {
        std::unique_lock lock(mutex_);
        if (changed_.wait_for(lock, limit_, [this] { return done_; })) return;
        std::fprintf(stderr, "watchdog: %s still runs after %lld ms\n", what_.c_str(),
                     static_cast<long long>(limit_.count()));
        std::fflush(nullptr);
        // Catch2's handler would report from this thread, while the hanging thread holds its locks.
        std::signal(SIGABRT, SIG_DFL);
        std::abort();
    }

    std::chrono::milliseconds limit_;
    std::string what_;
    std::mutex mutex_;
    std::condition_variable changed_;
    bool done_ = false;
    std::thread thread_;  // last, because it uses all other members
};

}  // namespace zeropp_test
