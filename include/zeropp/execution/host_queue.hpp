#pragma once
/// \file
/// Asynchronous execution on a thread of its own: the host's counterpart of a CUDA stream.

#include <zeropp/execution/execution.hpp>

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace zeropp {

/// Runs work in order on its own thread. Enqueueing returns at once and, once the queue has reached its working depth,
/// allocates nothing.
///
/// An exception in a piece of work skips everything enqueued behind it until `wait()` is called, which rethrows it and
/// makes the queue usable again. An execution that waits for an event of skipped work fails with the same exception.
/// Destruction lets the enqueued work finish; exceptions not collected by `wait()` are lost then.
class host_queue {
    struct state;

public:
    using space = host_space;

    /// A point in a queue's work; may outlive the queue. Default-constructed: already complete.
    class event {
    public:
        event() = default;

        /// Blocks the caller until the work before the event is complete; throws what that work threw.
        void wait() const {
            if (state_) state_->wait_for(ticket_);
        }

    private:
        friend class host_queue;
        event(std::shared_ptr<state> s, std::uint64_t ticket) : state_(std::move(s)), ticket_(ticket) {}

        std::shared_ptr<state> state_;
        std::uint64_t ticket_ = 0;
    };

    host_queue() : state_(std::make_shared<state>()), worker_([s = state_.get()] { s->run(); }) {}

    ~host_queue() {
        {
            const std::lock_guard lock(state_->mutex);
            state_->closing = true;
        }
        state_->changed.notify_all();
        worker_.join();
    }

    host_queue(const host_queue&) = delete;
    host_queue& operator=(const host_queue&) = delete;

    /// Runs work() after everything enqueued before it. The callable is copied into the queue; it may hold up to
    /// `task_capacity` bytes and must be nothrow-movable.
    template <class F>
    void enqueue(F&& work) const {
        state_->push(task(std::forward<F>(work)));
    }

    /// An event that completes with the work enqueued so far.
    event record() const {
        const std::lock_guard lock(state_->mutex);
        return {state_, state_->enqueued};
    }

    /// Later work starts after `other`, which may belong to another queue. Does not block the caller.
    void wait(const event& other) const {
        if (!other.state_ || other.state_ == state_) return;
        enqueue([other] { other.wait(); });
    }

    /// Blocks until all enqueued work is complete, then rethrows the first exception, if any, and forgets it.
    void wait() const { state_->drain(); }

    /// The most bytes that a callable may hold.
    static constexpr std::size_t task_capacity = 240;

private:
    /// A callable held in place.
    class task {
    public:
        task() = default;

        template <class F>
            requires(!std::same_as<std::remove_cvref_t<F>, task>)
        explicit task(F&& work) {
            using callable = std::remove_cvref_t<F>;
            static_assert(sizeof(callable) <= task_capacity, "work for a host_queue must fit task_capacity bytes");
            static_assert(alignof(callable) <= alignof(std::max_align_t) && std::is_nothrow_move_constructible_v<callable>);
            ::new (static_cast<void*>(storage_)) callable(std::forward<F>(work));
            act_ = [](action what, void* self, void* target) {
                auto* held = static_cast<callable*>(self);
                if (what == action::call) {
                    (*held)();
                } else {
                    if (what == action::move) ::new (target) callable(std::move(*held));
                    held->~callable();
                }
            };
        }

        task(task&& other) noexcept : act_(std::exchange(other.act_, nullptr)) {
            if (act_) act_(action::move, other.storage_, storage_);
        }
        task& operator=(task&& other) noexcept {
            if (this != &other) {
                this->~task();
                ::new (static_cast<void*>(this)) task(std::move(other));
            }
            return *this;
        }
        ~task() {
            if (act_) act_(action::destroy, storage_, nullptr);
        }

        void operator()() { act_(action::call, storage_, nullptr); }

    private:
        enum class action { call, move, destroy };

        alignas(std::max_align_t) std::byte storage_[task_capacity];
        void (*act_)(action, void*, void*) = nullptr;
    };

    struct state {
        std::mutex mutex;
        std::condition_variable changed;
        std::vector<task> ring = std::vector<task>(16);
        std::uint64_t enqueued = 0;   // tickets handed out
        std::uint64_t completed = 0;  // tickets whose work has run or was skipped
        bool closing = false;
        // The last failure: work with tickets [failed_first, failed_last] failed or was skipped because of it.
        std::exception_ptr failure;
        std::uint64_t failed_first = 1;
        std::uint64_t failed_last = 0;

        static constexpr std::uint64_t still_failing = ~std::uint64_t{0};

        bool failing() const { return failed_last == still_failing; }

        void push(task&& work) {
            {
                const std::lock_guard lock(mutex);
                if (enqueued - completed == ring.size()) grow();
                ring[enqueued % ring.size()] = std::move(work);
                ++enqueued;
            }
            changed.notify_all();
        }

        void grow() {
            std::vector<task> larger(2 * ring.size());
            for (std::uint64_t t = completed; t != enqueued; ++t) {
                larger[t % larger.size()] = std::move(ring[t % ring.size()]);
            }
            ring = std::move(larger);
        }

        void run() {
            std::unique_lock lock(mutex);
            for (;;) {
                changed.wait(lock, [&] { return closing || enqueued != completed; });
                if (enqueued == completed) return;
                task work = std::move(ring[completed % ring.size()]);
                if (!failing()) {
                    lock.unlock();
                    std::exception_ptr thrown;
                    try {
                        work();
                    } catch (...) {
                        thrown = std::current_exception();
                    }
                    lock.lock();
                    if (thrown) {
                        failure = thrown;
                        failed_first = completed + 1;
                        failed_last = still_failing;
                    }
                }
                ++completed;
                changed.notify_all();
            }
        }

        void wait_for(std::uint64_t ticket) {
            std::unique_lock lock(mutex);
            changed.wait(lock, [&] { return completed >= ticket; });
            if (ticket >= failed_first && ticket <= failed_last) std::rethrow_exception(failure);
        }

        void drain() {
            std::unique_lock lock(mutex);
            const std::uint64_t ticket = enqueued;
            changed.wait(lock, [&] { return completed >= ticket; });
            if (failing()) {
                failed_last = enqueued;
                std::rethrow_exception(failure);
            }
        }
    };

    std::shared_ptr<state> state_;
    std::thread worker_;
};

static_assert(host_execution<host_queue>);

}  // namespace zeropp
