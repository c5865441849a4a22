#pragma once
/// \file
/// Executions that finish before they return: on the calling thread, or on several.

#include <zeropp/core/error.hpp>
#include <zeropp/execution/execution.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace zeropp {

/// Runs everything at once on the calling thread. A collective on `host{}` has finished on return, and throws directly.
struct host {
    using space = host_space;
    /// Empty, since no work is ever pending.
    struct event {};

    template <class F>
    void enqueue(F&& work) const {
        std::forward<F>(work)();
    }
    /// Copies `bytes` bytes of host memory.
    void copy(void* to, const void* from, std::size_t bytes) const { std::memcpy(to, from, bytes); }
    void copy_to_host(void* to, const void* from, std::size_t bytes) const { std::memcpy(to, from, bytes); }
    event record() const { return {}; }
    void wait(const event&) const {}
    void wait() const {}
};

/// Runs everything at once, as `host` does. Codecs divide their work over threads: the execution's own, or a
/// framework's. The bits do not depend on the number of threads. Work too small to divide stays on the calling thread.
///
/// Copies of a host_threads share the threads. Several threads may call at the same time; own threads serve one caller
/// after another. A forked process lacks them.
class host_threads : public host {
public:
    /// Calls its argument once on each participating thread, in any order or concurrently, and returns when all these
    /// calls have returned. At least one thread participates, perhaps the calling one. Allows concurrent calls if the
    /// execution is called concurrently. Throws only while its argument does not run.
    using runner = std::function<void(const std::function<void()>&)>;

    /// Uses the calling thread and `threads` - 1 sleeping ones. Throws precondition_error unless `threads` is at least
    /// 1.
    explicit host_threads(int threads) : team_(std::make_shared<team>(threads)) {}

    /// Uses the threads of `run`, for instance of a framework's parallel loops.
    explicit host_threads(runner run) : team_(std::make_shared<team>(std::move(run))) {}

    /// Calls work() once on each thread, and returns after all calls. `work` must neither throw nor call `on_each`.
    template <class F>
    void on_each(const F& work) const {
        team_->run([](const void* held) { (*static_cast<const F*>(held))(); }, &work);
    }

    /// Threads over which codecs divide their work: this object.
    const host_threads* threads() const noexcept { return this; }

private:
    class team {
    public:
        // Delegates, so that the destructor ends the other threads if a thread cannot be started.
        explicit team(int threads) : team(runner()) {
            if (threads < 1) throw precondition_error("host_threads", "at least 1 thread", std::to_string(threads));
            for (int i = 1; i < threads; ++i) helpers_.emplace_back([this] { help(); });
        }
        explicit team(runner run) : run_(std::move(run)) {}

        ~team() {
            closing_ = true;
            calls_.fetch_add(1);
            calls_.notify_all();
            for (std::thread& helper : helpers_) helper.join();
        }

        team(const team&) = delete;
        team& operator=(const team&) = delete;

        void run(void (*call)(const void*), const void* held) {
            if (run_) {
                std::atomic<bool> called = false;
                run_([&] {
                    called = true;
                    call(held);
                });
                if (!called) throw precondition_error("host_threads", "a runner that calls what it is given", "none");
                return;
            }
            const std::lock_guard turn(turns_);
            call_ = call;
            held_ = held;
            busy_.store(helpers_.size());
            calls_.fetch_add(1);
            calls_.notify_all();
            call(held);
            for (std::size_t busy = busy_.load(); busy != 0; busy = busy_.load()) busy_.wait(busy);
        }

    private:
        void help() {
            for (std::uint32_t seen = 0;; ++seen) {
                calls_.wait(seen);
                if (closing_) return;
                call_(held_);
                if (busy_.fetch_sub(1) == 1) busy_.notify_one();
            }
        }

        std::mutex turns_;
        runner run_;
        void (*call_)(const void*) = nullptr;
        const void* held_ = nullptr;
        /// Number of calls so far, and one to close. Helpers wait for the next number.
        std::atomic<std::uint32_t> calls_ = 0;
        /// Number of helpers that have not returned from the last call.
        std::atomic<std::size_t> busy_ = 0;
        std::atomic<bool> closing_ = false;
        std::vector<std::thread> helpers_;
    };

    std::shared_ptr<team> team_;
};

}  // namespace zeropp
