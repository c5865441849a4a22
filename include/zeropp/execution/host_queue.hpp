#pragma once
/// \file
/// Asynchronous execution on a dedicated thread: the host's counterpart of a CUDA stream.

#include <zeropp/execution/execution.hpp>
#include <zeropp/execution/host.hpp>

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace zeropp {

/// Execution that runs work in order on a dedicated thread. Enqueueing returns at once, and allocates only if more work
/// waits than ever before, and more than 16 items.
///
/// If work throws, the queue skips all work behind it, until `wait()` rethrows the exception and makes the queue usable
/// again. An execution that waits for an event of skipped work fails with the same exception. The destructor lets
/// enqueued work finish; exceptions that no `wait()` has rethrown are lost.
class host_queue {
    struct state;

public:
    using space = host_space;

    /// A point in a queue's work. May outlive the queue. A default-constructed event is complete.
    class event {
    public:
        event() = default;

        /// Blocks the caller until the work before the event is complete. Rethrows the exception of that work, if any.
        void wait() const {
            if (state_) state_->wait_for(ticket_);
        }

    private:
        friend class host_queue;
        event(std::shared_ptr<state> s, std::uint64_t ticket) : state_(std::move(s)), ticket_(ticket) {}

        std::shared_ptr<state> state_;
        std::uint64_t ticket_ = 0;
    };

    /// Starts the queue's thread. Codecs run on it, without dividing their work over further threads.
    host_queue() : state_(std::make_shared<state>()), worker_([s = state_.get()] { s->run(); }) {}

    /// Starts the queue's thread. Codecs divide their work over it and the started threads of `threads`.
    explicit host_queue(host_threads threads) : host_queue() { threads_ = std::move(threads); }

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

    /// Runs work() after all work enqueued before. The callable is stored: it must be nothrow-movable, not
    /// over-aligned, and of at most `task_capacity` bytes.
    template <class F>
    void enqueue(F&& work) const {
        state_->push(task(std::forward<F>(work)));
    }

    /// Enqueues a copy of `bytes` bytes of host memory.
    void copy(void* to, const void* from, std::size_t bytes) const {
        enqueue([=] { std::memcpy(to, from, bytes); });
    }
    /// Enqueues a copy of `bytes` bytes, as `copy` does: all memory of a host_queue is host memory.
    void copy_to_host(void* to, const void* from, std::size_t bytes) const { copy(to, from, bytes); }

    /// An event that completes with the work enqueued so far.
    event record() const { return {state_, state_->ticket_to_record()}; }

    /// Makes work that is enqueued later start after `other`, an event of any host_queue. Does not block the caller.
    void wait(const event& other) const {
        if (!other.state_ || other.state_ == state_) return;
        enqueue([other] { other.wait(); });
    }

    /// Blocks the caller until all work enqueued so far is complete, then rethrows, once, the first exception of work.
    void wait() const { state_->drain(); }

    /// Execution with the threads over which codecs divide their work; null if they work on the queue's thread alone.
    const host_threads* threads() const noexcept { return threads_ ? &*threads_ : nullptr; }

    /// Largest size of a callable to enqueue, in bytes.
    static constexpr std::size_t task_capacity = 272;

private:
    /// A callable without arguments, of any type, stored in this object without an allocation.
    class task {
    public:
        task() = default;

        template <class F>
            requires(!std::same_as<std::remove_cvref_t<F>, task>)
        explicit task(F&& work) {
            using callable = std::remove_cvref_t<F>;
            static_assert(sizeof(callable) <= task_capacity, "work for a host_queue must fit task_capacity bytes");
            static_assert(alignof(callable) <= alignof(std::max_align_t),
                          "work for a host_queue must not be over-aligned");
            static_assert(std::is_nothrow_move_constructible_v<callable>,
                          "work for a host_queue must be nothrow-movable");
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
        std::uint64_t enqueued = 0;   // number of items of work so far, which is also the last item's ticket
        std::uint64_t completed = 0;  // number of items that have run or were skipped
        bool closing = false;

        /// A failure: the item with ticket `first` threw `thrown`, and later items up to ticket `last` were skipped.
        struct failed_work {
            std::uint64_t first;
            std::uint64_t last;
            std::exception_ptr thrown;
        };
        // All failures so far, since events may refer to old ones. Room for one more is always reserved, so that
        // recording a failure, perhaps std::bad_alloc, does not allocate.
        std::vector<failed_work> failures;

        /// Value of `last` for a failure that no wait() has rethrown.
        static constexpr std::uint64_t still_failing = ~std::uint64_t{0};

        state() { failures.reserve(1); }

        bool failing() const { return !failures.empty() && failures.back().last == still_failing; }

        std::uint64_t ticket_to_record() {
            const std::lock_guard lock(mutex);
            // After `wait()` has rethrown a failure, the last ticket may be of skipped work. Ticket 0 is complete.
            return !failures.empty() && failures.back().last == enqueued ? 0 : enqueued;
        }

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
                    if (thrown) failures.push_back({completed + 1, still_failing, std::move(thrown)});
                }
                ++completed;
                changed.notify_all();
            }
        }

        void wait_for(std::uint64_t ticket) {
            std::unique_lock lock(mutex);
            changed.wait(lock, [&] { return completed >= ticket; });
            const auto failed = std::find_if(failures.rbegin(), failures.rend(), [&](const failed_work& f) {
                return f.first <= ticket && ticket <= f.last;
            });
            if (failed != failures.rend()) std::rethrow_exception(failed->thrown);
        }

        void drain() {
            std::unique_lock lock(mutex);
            const std::uint64_t ticket = enqueued;
            const std::size_t collected = failures.size() - (failing() ? 1 : 0);
            changed.wait(lock, [&] { return completed >= ticket; });
            if (failing()) {
                failures.reserve(failures.size() + 1);
                failures.back().last = completed;
            }
            // A concurrent wait() may have collected the failure, but this caller's work was skipped, too.
            if (failures.size() != collected) std::rethrow_exception(failures[collected].thrown);
        }
    };

    std::shared_ptr<state> state_;
    std::optional<host_threads> threads_;
    std::thread worker_;
};

}  // namespace zeropp
