#pragma once
/// \file
/// Host executions that run work before a call returns: on the calling thread, or on several threads.

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

/// Execution that runs all work at once on the calling thread. A collective on `host{}` throws directly, and has
/// finished on return.
struct host {
    using space = host_space;
    /// An event. Empty, since no work is ever pending.
    struct event {};

    /// Calls work() at once.
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

/// Execution that runs all work before a call returns. Codecs divide their work over threads: the execution's own, or a
/// framework's. The bits do not depend on the number of threads. Work too small to divide stays on the calling thread.
///
/// Copies of a host_threads share the threads. Several threads may call at the same time; own threads serve one caller
/// after another. A child process of fork() lacks own threads, and must not use copies from its parent.
class host_threads : public host {
public:
    /// Type of a function that calls its argument once on each participating thread, in any order or concurrently. It
    /// returns when all these calls have returned. At least one thread participates, perhaps the calling one. Must
    /// allow concurrent calls if the execution is called concurrently. May throw only while its argument does not run.
    using runner = std::function<void(const std::function<void()>&)>;

    /// Uses the calling thread and `threads` - 1 threads that the constructor starts. These sleep between calls. Throws
    /// precondition_error unless `threads` is at least 1.
    explicit host_threads(int threads) : team_(std::make_shared<team>(threads)) {}

    /// Uses the threads on which `run` calls its argument, for instance threads of a framework's parallel loops.
    explicit host_threads(runner run) : team_(std::make_shared<team>(std::move(run))) {}

    /// Calls work() once on each thread of the execution; returns after all calls. `work` must neither throw nor call
    /// `on_each`.
    template <class F>
    void on_each(const F& work) const {
        team_->run([](const void* held) { (*static_cast<const F*>(held))(); }, &work);
    }

    /// Execution with the threads over which codecs divide their work: this object.
    const host_threads* threads() const noexcept { return this; }

private:
    class team {
    public:
        // Delegates: if a thread cannot be started, the destructor then ends the threads started before.
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
        /// Number of calls of `run` so far, plus one when the team closes. Started threads sleep until it changes.
        std::atomic<std::uint32_t> calls_ = 0;
        /// Number of started threads that have not finished the last call of `run`.
        std::atomic<std::size_t> busy_ = 0;
        std::atomic<bool> closing_ = false;
        std::vector<std::thread> helpers_;
    };

    std::shared_ptr<team> team_;
};

}  // namespace zeropp
