#pragma once
/// \file
/// Ranks that are threads of one process.

#include <zeropp/core/error.hpp>
#include <zeropp/execution/execution.hpp>
#include <zeropp/execution/host.hpp>
#include <zeropp/transport/deadline.hpp>
#include <zeropp/transport/transport.hpp>

#include <algorithm>
#include <chrono>
#include <concepts>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace zeropp {

/// Connects threads of one process through shared memory. Each rank's handle belongs to one thread, and to the
/// executions on which it enqueues. Copies of a handle are the same rank. On GPUs, each thread enqueues on its own
/// stream: the threads meet, and their streams wait for one another by events.
///
/// If ranks call different operations, or with different sizes or lists, every rank throws the same precondition_error
/// and can go on. A rank that misses a call leaves the others waiting until `abort` or a timeout. Then all waiting and
/// later calls, also of splits, throw the same peer_error or timeout_error. After an error, buffers are the caller's.
class thread_transport {
public:
    /// Handles for `ranks` ranks, one for each thread. Throws precondition_error unless ranks > 0 and the timeout is
    /// not negative.
    static std::vector<thread_transport> create(int ranks, transport_options options = {}) {
        if (ranks < 1) throw precondition_error(name, "at least 1 rank", std::to_string(ranks));
        detail::require_timeout(name, options);
        const auto g = std::make_shared<group>(std::make_shared<family>(options), ranks);
        g->world_ranks = detail::world_ranks(ranks);
        g->join_family();
        std::vector<thread_transport> handles;
        for (int r = 0; r != ranks; ++r) handles.push_back(thread_transport(g, r, {}));
        return handles;
    }

    int rank() const { return rank_; }
    int size() const { return static_cast<int>(group_->slots.size()); }

    /// Notes the collective's name for errors, see begin_collective.
    void begin(const collective_call& call, const std::string& problem) {
        log_.begin(call.primitive);
        detail::require_no_problem(call, problem);
    }

    template <execution E>
    void all_gather(const E& exec, const std::byte* send, std::byte* recv, std::size_t bytes) {
        in_turn(exec, log_.next(detail::operation::all_gather, bytes), send, recv);
    }

    template <execution E>
    void all_to_all(const E& exec, const std::byte* send, std::byte* recv, std::size_t bytes) {
        in_turn(exec, log_.next(detail::operation::all_to_all, bytes), send, recv);
    }

    template <execution E>
    void broadcast(const E& exec, const std::byte* send, std::byte* recv, std::size_t bytes, int roots) {
        detail::require_roots("thread_transport", roots, size());
        in_turn(exec, log_.next(detail::operation::broadcast, bytes, roots), send, recv);
    }

    thread_transport split(std::span<const int> members) {
        std::shared_ptr<group> child = group_->split(rank_, log_.next(detail::operation::split, 0), members);
        const auto self = std::find(members.begin(), members.end(), rank_);
        return {std::move(child), static_cast<int>(self - members.begin()), log_.split()};
    }

    /// Makes every waiting or later call throw peer_error of `reason`, on all ranks and all transports of the family.
    void abort(const std::string& reason) { group_->relatives->fail(std::make_exception_ptr(peer_error(reason))); }

private:
    static constexpr const char* name = "thread_transport";

    struct group;

    /// All groups split from one another. They fail together.
    struct family {
        explicit family(transport_options options) : timeout(options.timeout) {}

        const std::chrono::milliseconds timeout;
        std::mutex mutex;  // locked before a group's
        std::vector<std::weak_ptr<group>> groups;
        std::exception_ptr cause;  // the first failure

        [[gnu::cold]] void fail(std::exception_ptr why) {
            std::unique_lock lock(mutex);
            fail(std::move(lock), std::move(why));
        }

        /// Fails the family with the exception why(), because a rank waited too long for a meeting of `g`. Does nothing
        /// if that meeting has taken place meanwhile.
        template <class Why>
        [[gnu::cold]] void fail_unless_met(group& g, std::uint64_t meeting, Why why) {
            std::unique_lock lock(mutex);
            {
                const std::lock_guard lock_group(g.mutex);
                if (g.generation != meeting) return;
                if (!cause) cause = std::make_exception_ptr(why());
                g.cause = cause;
            }
            fail(std::move(lock), cause);
        }

    private:
        [[gnu::cold]] void fail(std::unique_lock<std::mutex> lock, std::exception_ptr why) {
            if (!cause) cause = std::move(why);
            const std::exception_ptr first = cause;
            std::vector<std::shared_ptr<group>> alive;
            for (const auto& g : groups) {
                if (auto locked = g.lock()) alive.push_back(std::move(locked));
            }
            lock.unlock();
            for (const auto& g : alive) g->fail(first);
        }
    };

    struct group : std::enable_shared_from_this<group> {
        group(std::shared_ptr<family> f, int ranks) : relatives(std::move(f)), slots(static_cast<std::size_t>(ranks)) {}

        struct slot {
            detail::operation_in_call what;
            const std::byte* send = nullptr;
            // Events of the execution's type, which is equal on all ranks. `ready`: `send` can be read. `done`: this
            // rank has copied from all others.
            const void* ready = nullptr;
            const void* done = nullptr;
            std::span<const int> members = {};
            std::weak_ptr<group> child = {};
        };

        std::shared_ptr<family> relatives;
        std::vector<slot> slots;
        std::vector<int> world_ranks;  // world rank of each slot

        std::mutex mutex;
        std::condition_variable changed;
        std::size_t arrived = 0;
        std::uint64_t generation = 0;
        std::vector<char> met = std::vector<char>(slots.size());  // [r] != 0: rank r has come to the next meeting
        std::exception_ptr cause;                                 // the failure after which no meeting takes place

        void join_family() {
            const std::lock_guard lock(relatives->mutex);
            if (relatives->cause) fail(relatives->cause);
            std::erase_if(relatives->groups, [](const auto& g) { return g.expired(); });
            relatives->groups.push_back(weak_from_this());
        }

        [[gnu::cold]] void fail(std::exception_ptr why) {
            {
                const std::lock_guard lock(mutex);
                cause = std::move(why);
            }
            changed.notify_all();
        }

        /// Returns true on the last rank to come, and releases the others.
        bool last_to_arrive() {
            if (++arrived != slots.size()) return false;
            arrived = 0;
            ++generation;
            changed.notify_all();
            return true;
        }

        /// Returns when all ranks have called it. Throws the family's failure if one of them never will.
        void meet(int rank, const detail::operation_in_call& what) {
            const auto deadline = detail::deadline_after(relatives->timeout);
            std::unique_lock lock(mutex);
            if (cause) std::rethrow_exception(cause);
            const std::uint64_t mine = generation;
            met[static_cast<std::size_t>(rank)] = true;
            if (last_to_arrive()) {
                std::fill(met.begin(), met.end(), 0);
                return;
            }
            const auto over = [&] { return generation != mine || cause; };
            if (deadline == detail::no_deadline) {
                changed.wait(lock, over);
            } else if (!changed.wait_until(lock, deadline, over)) {
                lock.unlock();
                relatives->fail_unless_met(
                    *this, mine, [&] { return detail::timed_out(name, what, relatives->timeout, missing()); });
                lock.lock();
            }
            if (generation == mine) std::rethrow_exception(cause);
        }

        /// World ranks that have not come to the next meeting.
        [[gnu::cold]] std::vector<int> missing() const {
            std::vector<int> ranks;
            for (std::size_t r = 0; r != met.size(); ++r) {
                if (!met[r]) ranks.push_back(world_ranks[r]);
            }
            return ranks;
        }

        /// Scope after a meeting that ranks leave together. They read each other's memory in it, so none may leave
        /// before the others are done, even after a failure. Every rank comes to the destructor, so it cannot hang.
        class together {
        public:
            explicit together(group& g) : group_(g) {}
            together(const together&) = delete;
            together& operator=(const together&) = delete;
            ~together() {
                std::unique_lock lock(group_.mutex);
                const std::uint64_t mine = group_.generation;
                if (group_.last_to_arrive()) return;
                group_.changed.wait(lock, [&] { return group_.generation != mine; });
            }

        private:
            group& group_;
        };

        slot& at(int rank) { return slots[static_cast<std::size_t>(rank)]; }

        /// Meets the other ranks and enqueues this rank's copies on `exec`. A stream waits for the other streams by
        /// events; the host does not wait for the data.
        template <class E>
        void exchange(const E& exec, int rank, const detail::operation_in_call& what, const std::byte* send,
                      std::byte* recv) {
            const std::size_t bytes = what.bytes;
            using event = typename E::event;
            const event ready = exec.record();
            event done;
            at(rank) = {.what = what, .send = send, .ready = &ready, .done = &done};
            meet(rank, what);
            const together until_all_are_done(*this);
            require_same_operation();
            std::exception_ptr failure;
            try {
                const int n = static_cast<int>(slots.size());
                for (int i = 0; i != n; ++i) {
                    const int from = (rank + i) % n;
                    if (!what.sends(from)) continue;
                    const std::byte* data = what.sent_to(rank, at(from).send);
                    std::byte* to = recv + static_cast<std::size_t>(from) * bytes;
                    exec.wait(*static_cast<const event*>(at(from).ready));
                    if (data != to && bytes != 0) exec.copy(to, data, bytes);
                }
                done = exec.record();
            } catch (...) {
                failure = std::current_exception();
            }
            if constexpr (!std::same_as<E, host>) {
                // Not `meet`, which can throw: a rank with a failure still owes the others its event.
                { const together until_all_have_recorded(*this); }
                for (const slot& s : slots) exec.wait(*static_cast<const event*>(s.done));
            }
            if (failure) std::rethrow_exception(failure);
        }

        /// Group of `members`, the same object on all of them.
        std::shared_ptr<group> split(int rank, const detail::operation_in_call& what, std::span<const int> members) {
            // The first rank of a list makes the group before the meeting. If that throws, no rank is waiting yet.
            std::shared_ptr<group> own;
            if (!members.empty() && members.front() == rank) {
                own = std::make_shared<group>(relatives, static_cast<int>(members.size()));
                own->join_family();
            }
            at(rank) = {.what = what, .members = members, .child = own};
            meet(rank, what);
            const together until_all_are_done(*this);
            require_same_operation();
            require_members();
            if (own) own->world_ranks = detail::world_ranks(world_ranks, members);
            return at(members.front()).child.lock();
        }

        /// Throws precondition_error with all ranks' operations if they differ.
        void require_same_operation() const {
            const auto same = [&](const slot& s) { return s.what.same_move(slots[0].what); };
            if (std::all_of(slots.begin(), slots.end(), same)) return;
            throw_given("the same operation on every rank", [](const slot& s) { return s.what.move_text(); });
        }

        /// Throws precondition_error with all ranks' lists unless exactly the ranks in each list gave that list.
        void require_members() const {
            for (std::size_t r = 0; r != slots.size(); ++r) {
                const auto& list = slots[r].members;
                const auto times = [&](int m) { return std::count(list.begin(), list.end(), m); };
                const auto gave_it_too = [&](int m) {
                    if (m < 0 || static_cast<std::size_t>(m) >= slots.size() || times(m) != 1) return false;
                    const auto& given = slots[static_cast<std::size_t>(m)].members;
                    return std::equal(given.begin(), given.end(), list.begin(), list.end());
                };
                if (times(static_cast<int>(r)) == 1 && std::all_of(list.begin(), list.end(), gave_it_too)) continue;
                throw_given("the same list of ranks on each rank in it, itself among them", [](const slot& s) {
                    std::string text;
                    for (const int m : s.members) text += (text.empty() ? "{" : ", ") + std::to_string(m);
                    return "split " + (text.empty() ? "{" : text) + "}";
                });
            }
        }

        template <class Describe>
        [[noreturn, gnu::cold]] void throw_given(std::string_view expected, Describe describe) const {
            std::string given;
            for (std::size_t r = 0; r != slots.size(); ++r) {
                given += (r == 0 ? "" : ", ") + describe(slots[r]) + " on rank " + std::to_string(r);
            }
            throw precondition_error(name, expected, given);
        }
    };

    /// Runs an operation: on host executions in its turn; on a stream, meeting and copies are the calling thread's.
    template <class E>
    void in_turn(const E& exec, const detail::operation_in_call& what, const std::byte* send, std::byte* recv) {
        const auto work = [g = group_, rank = rank_, what, send, recv](const auto& on) {
            g->exchange(on, rank, what, send, recv);
        };
        if constexpr (host_execution<E>) {
            exec.enqueue([work] { work(host{}); });
        } else {
            work(exec);
        }
    }

    thread_transport(std::shared_ptr<group> g, int rank, detail::call_log log)
        : group_(std::move(g)), rank_(rank), log_(std::move(log)) {}

    std::shared_ptr<group> group_;
    int rank_;
    detail::call_log log_;
};

namespace detail {
/// Makes the other ranks' collectives throw "rank N `what`: `cause`"; `what` is a verb such as "failed".
[[gnu::cold]] inline void abort_by_rank(thread_transport& transport, std::string_view what,
                                        std::string_view cause = "") {
    std::string reason = "rank " + std::to_string(transport.rank()) + " ";
    reason.append(what).append(cause.empty() ? "" : ": ").append(cause);
    transport.abort(reason);
}
}  // namespace detail

/// Runs work(transport) on `ranks` threads, one for each rank, and waits for them. When a rank throws, the others'
/// collectives throw peer_error. Then throws the exception of the lowest rank; peer_error only if no rank threw another
/// one. If a thread cannot be started, the others are released the same way, and its exception is thrown.
template <class Work>
void run_on_threads(int ranks, Work work, transport_options options = {}) {
    std::vector<thread_transport> handles = thread_transport::create(ranks, options);
    std::vector<std::exception_ptr> own_failures(handles.size());
    std::vector<std::exception_ptr> peer_failures(handles.size());
    {
        std::vector<std::jthread> threads;
        const auto start = [&](std::size_t r) {
            threads.emplace_back([&, r] {
                try {
                    work(handles[r]);
                } catch (const peer_error&) {
                    peer_failures[r] = std::current_exception();
                    detail::abort_by_rank(handles[r], "was released from a collective that another rank left");
                } catch (const std::exception& e) {
                    own_failures[r] = std::current_exception();
                    detail::abort_by_rank(handles[r], "failed", e.what());
                } catch (...) {
                    own_failures[r] = std::current_exception();
                    detail::abort_by_rank(handles[r], "failed");
                }
            });
        };
        try {
            for (std::size_t r = 0; r != handles.size(); ++r) start(r);
        } catch (...) {
            handles.front().abort("not every rank could be started");
            throw;
        }
    }
    for (const auto* failures : {&own_failures, &peer_failures}) {
        for (const auto& failure : *failures) {
            if (failure) std::rethrow_exception(failure);
        }
    }
}

}  // namespace zeropp
