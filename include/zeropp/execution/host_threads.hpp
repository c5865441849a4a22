#pragma once
/// \file
/// Immediate execution with the help of other threads.

#include <zeropp/core/error.hpp>
#include <zeropp/execution/execution.hpp>
#include <zeropp/execution/host.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace zeropp {

/// Runs everything at once, as `host` does, and divides what codecs do over threads: of its own, or a framework's. The
/// bits are the same for any number of them. A call whose work is too little to divide keeps to the calling thread.
///
/// Copies share the threads. Several callers may use them at the same time; those of its own take turns, so that one
/// piece of work has all of them. As with all threads, a process that has forked is without them.
class host_threads : public host {
public:
    /// Calls its argument on as many threads as are to take part, once on each, in any order or at the same time, and
    /// returns when all calls have; at least one, which may be on the calling thread. May be called by several threads
    /// at the same time if the execution is. Throws, if at all, when no call runs.
    using runner = std::function<void(const std::function<void()>&)>;

    /// `threads` in all: the calling one, and others of its own that wait, without using the processor, until they are
    /// needed. Throws precondition_error unless there is at least one.
    explicit host_threads(int threads) : team_(std::make_shared<team>(threads)) {}

    /// Threads that `run` has, for instance those of a framework's parallel loops.
    explicit host_threads(runner run) : team_(std::make_shared<team>(std::move(run))) {}

    /// Calls work() once on each thread and returns when all calls have. Requires work not to throw, and not to call
    /// this again.
    template <class F>
    void on_each(const F& work) const {
        team_->run([](const void* held) { (*static_cast<const F*>(held))(); }, &work);
    }

    /// What an execution's work is divided over: itself.
    const host_threads* threads() const noexcept { return this; }

private:
    class team {
    public:
        // By way of a whole object: where one of the threads cannot be made, the destructor ends those that were.
        explicit team(int threads) : team(runner()) {
            if (threads < 1) throw precondition_error("host_threads", "at least 1 thread", std::to_string(threads));
            for (int i = 1; i < threads; ++i) helpers_.emplace_back([this] { help(); });
        }
        explicit team(runner run) : run_(std::move(run)) {}

        ~team() {
            closing_ = true;
            rounds_.fetch_add(1);
            rounds_.notify_all();
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
            rounds_.fetch_add(1);
            rounds_.notify_all();
            call(held);
            for (std::size_t busy = busy_.load(); busy != 0; busy = busy_.load()) busy_.wait(busy);
        }

    private:
        void help() {
            for (std::uint32_t seen = 0;; ++seen) {
                rounds_.wait(seen);
                if (closing_) return;
                call_(held_);
                if (busy_.fetch_sub(1) == 1) busy_.notify_one();
            }
        }

        std::mutex turns_;
        runner run_;
        void (*call_)(const void*) = nullptr;
        const void* held_ = nullptr;
        /// How often helpers were called, and how many have not returned since.
        std::atomic<std::uint32_t> rounds_ = 0;
        std::atomic<std::size_t> busy_ = 0;
        std::atomic<bool> closing_ = false;
        std::vector<std::thread> helpers_;
    };

    std::shared_ptr<team> team_;
};

static_assert(host_execution<host_threads>);

}  // namespace zeropp
