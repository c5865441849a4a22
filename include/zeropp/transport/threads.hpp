#pragma once
/// \file
/// Ranks that are threads of one process.

#include <zeropp/core/error.hpp>
#include <zeropp/execution/execution.hpp>
#include <zeropp/execution/host.hpp>
#include <zeropp/transport/deadline.hpp>
#include <zeropp/transport/operation.hpp>
#include <zeropp/transport/thread_group.hpp>
#include <zeropp/transport/transport.hpp>

#include <algorithm>
#include <cstddef>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace zeropp {

/// A transport between threads of one process, through shared memory. Each rank has a handle, for one thread and the
/// executions on which that thread enqueues. Copies of a handle stand for the same rank. On GPUs, each thread enqueues
/// on its own stream: the threads meet, and their streams wait for one another by events.
///
/// If ranks call different operations, or with different sizes or lists, every rank throws the same precondition_error
/// and can go on. A rank that misses a call leaves the others waiting until `abort`, another rank's `shrink`, or a
/// timeout. Then all waiting and later calls, also of splits, throw the same peer_error or timeout_error. After an
/// error, buffers are the caller's.
class thread_transport : public operations<thread_transport> {
public:
    /// Handles for `ranks` ranks, one for each thread. Throws precondition_error unless ranks > 0 and the timeout is
    /// not negative.
    static std::vector<thread_transport> create(int ranks, transport_options options = {}) {
        if (ranks < 1) throw precondition_error(name, "at least 1 rank", std::to_string(ranks));
        detail::require_timeout(name, options);
        const auto g = group::make(std::make_shared<detail::thread_family>(options, ranks), detail::world_ranks(ranks));
        std::vector<thread_transport> handles;
        for (int r = 0; r != ranks; ++r) handles.push_back(thread_transport(g, r, {}));
        return handles;
    }

    int rank() const { return rank_; }
    int size() const { return static_cast<int>(group_->slots.size()); }

    /// Notes the collective's name for errors, see begin_collective.
    void begin(const collective_call& call, const std::string& /*problem*/) { log_.begin(call.primitive); }

    /// Runs the operation `what`: on a host execution in its turn. On a stream, this thread waits for the other ranks'
    /// threads, and enqueues the copies.
    template <execution E>
    void move(const E& exec, const operation& what, const std::byte* send, std::byte* recv) {
        const auto work = [g = group_, rank = rank_, named = log_.next(what), send, recv](const auto& on) {
            g->exchange(on, rank, named, send, recv);
        };
        if constexpr (host_execution<E>) {
            exec.enqueue([work] { work(host{}); });
        } else {
            work(exec);
        }
    }

    thread_transport split(std::span<const int> members) {
        std::shared_ptr<group> child = group_->split(rank_, log_.next({operation::split}), members);
        const auto self = std::find(members.begin(), members.end(), rank_);
        return {std::move(child), static_cast<int>(self - members.begin()), log_.split()};
    }

    /// Transport of the survivors of a failure, see shrinkable_transport. A rank is dead if it has called `leave`; with
    /// a timeout, also if it calls neither an operation nor `shrink` for that long. The time counts from the rank's
    /// last operation or `shrink`, or from the beginning of the failed wait if that is later. So survivors do not wait
    /// again for a rank that they have waited for in vain. They must call `shrink` within the timeout after their
    /// error.
    shrunk<thread_transport> shrink(std::span<const int> excluded = {}) {
        auto [survivors, ranks] = group_->shrink(rank_, excluded);
        const auto self = std::find(ranks.begin(), ranks.end(), rank_);
        return {thread_transport(std::move(survivors), static_cast<int>(self - ranks.begin()), {}), std::move(ranks)};
    }

    /// Makes every waiting or later call throw peer_error with the text `reason`, on all ranks. This covers all
    /// transports that were split from one another, and the transports that this rank and other survivors have got from
    /// `shrink`.
    void abort(const std::string& reason) {
        group_->relatives->abort(group_->world_rank(rank_), std::make_exception_ptr(peer_error(reason)));
    }

    /// Notes that no thread of this rank will call again: survivors do not wait for it. run_on_threads does so at the
    /// end of each thread.
    void leave() { group_->relatives->leave(group_->world_rank(rank_)); }

private:
    using group = detail::thread_family::group;
    static constexpr const char* name = detail::thread_family::name;

    thread_transport(std::shared_ptr<group> g, int rank, detail::call_log log)
        : group_(std::move(g)), rank_(rank), log_(std::move(log)) {}

    std::shared_ptr<group> group_;
    int rank_;
    detail::call_log log_;
};

namespace detail {
/// Implementation of zeropp::run_on_threads, with `work(held, transport)`. It is no template, so that a program
/// compiles it once.
inline void run_on_threads(int ranks, void (*work)(void*, thread_transport&), void* held, transport_options options) {
    std::vector<thread_transport> handles = thread_transport::create(ranks, options);
    std::vector<std::exception_ptr> own_failures(handles.size());
    std::vector<std::exception_ptr> peer_failures(handles.size());
    const auto run = [&](std::size_t r) {
        const auto keep = [&](std::vector<std::exception_ptr>& failures, const std::string& what) {
            failures[r] = std::current_exception();
            handles[r].abort("rank " + std::to_string(r) + " " + what);
        };
        try {
            work(held, handles[r]);
        } catch (const peer_error&) {
            keep(peer_failures, "was released from a collective that another rank left");
        } catch (const std::exception& e) {
            keep(own_failures, std::string("failed: ") + e.what());
        } catch (...) {
            keep(own_failures, "failed");
        }
        handles[r].leave();
    };
    std::vector<std::thread> threads(handles.size());
    std::exception_ptr not_started;
    for (std::size_t r = 0; r != threads.size(); ++r) {
        try {
            if (!not_started) threads[r] = std::thread(run, r);
        } catch (...) {
            not_started = std::current_exception();
            handles.front().abort("not every rank could be started");
        }
        if (not_started) handles[r].leave();
    }
    for (std::thread& thread : threads) {
        if (thread.joinable()) thread.join();
    }
    if (not_started) std::rethrow_exception(not_started);
    for (const auto* failures : {&own_failures, &peer_failures}) {
        for (const auto& failure : *failures) {
            if (failure) std::rethrow_exception(failure);
        }
    }
}
}  // namespace detail

/// Runs `work(transport)` on `ranks` threads, one for each rank, and waits for them. When a rank throws, the others'
/// collectives throw peer_error. Then throws the exception of the lowest rank, and peer_error only if no rank threw
/// another one. If a thread cannot be started, the other threads get peer_error, and the caller gets the exception of
/// the failed start.
template <class Work>
void run_on_threads(int ranks, Work work, transport_options options = {}) {
    const auto call = [](void* held, thread_transport& transport) { (*static_cast<Work*>(held))(transport); };
    detail::run_on_threads(ranks, call, &work, options);
}

}  // namespace zeropp
