#pragma once
/// \file
/// Ranks that are threads of one process.

#include <zeropp/core/error.hpp>
#include <zeropp/execution/execution.hpp>
#include <zeropp/transport/transport.hpp>

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace zeropp {

/// Connects threads of one process through shared memory; needs no installation. Each rank's handle belongs to one
/// thread (and the executions it enqueues on). Copies of a handle are the same rank.
///
/// Ranks that call different operations, or with different sizes, get a precondition_error on every rank. After
/// `abort`, every waiting and later call on any rank throws peer_error.
class thread_transport {
public:
    /// Handles for `ranks` ranks, to be given to as many threads. Throws precondition_error unless ranks > 0.
    static std::vector<thread_transport> create(int ranks) {
        if (ranks < 1) throw precondition_error("thread_transport", "at least 1 rank", std::to_string(ranks));
        const auto g = std::make_shared<group>(std::make_shared<family>(), ranks);
        g->join_family();
        std::vector<thread_transport> handles;
        for (int r = 0; r != ranks; ++r) handles.push_back(thread_transport(g, r));
        return handles;
    }

    int rank() const { return rank_; }
    int size() const { return static_cast<int>(group_->slots.size()); }

    template <host_execution E>
    void all_gather(const E& exec, const std::byte* send, std::byte* recv, std::size_t bytes) {
        exec.enqueue([g = group_, rank = rank_, send, recv, bytes] {
            g->exchange(rank, "all_gather", send, recv, bytes, [](const std::byte* from) { return from; });
        });
    }

    template <host_execution E>
    void all_to_all(const E& exec, const std::byte* send, std::byte* recv, std::size_t bytes) {
        exec.enqueue([g = group_, rank = rank_, send, recv, bytes] {
            g->exchange(rank, "all_to_all", send, recv, bytes,
                        [=](const std::byte* from) { return from + static_cast<std::size_t>(rank) * bytes; });
        });
    }

    thread_transport split(std::span<const int> members) {
        const auto self = std::find(members.begin(), members.end(), rank_);
        if (self == members.end()) throw precondition_error("split", "a list with rank " + std::to_string(rank_), "one without");
        return {group_->split(rank_, members), static_cast<int>(self - members.begin())};
    }

    /// Makes every rank that waits, or calls later, on this transport and all its splits throw peer_error with `reason`.
    void abort(const std::string& reason) { group_->relatives->abort(reason); }

private:
    struct group;

    /// All groups split from one another: they fail together.
    struct family {
        std::mutex mutex;
        std::vector<std::weak_ptr<group>> groups;
        bool aborted = false;
        std::string reason;

        void abort(const std::string& why) {
            std::vector<std::shared_ptr<group>> alive;
            {
                const std::lock_guard lock(mutex);
                if (!aborted) reason = why;
                aborted = true;
                for (const auto& g : groups) {
                    if (auto locked = g.lock()) alive.push_back(std::move(locked));
                }
            }
            for (const auto& g : alive) g->fail(why);
        }
    };

    struct group : std::enable_shared_from_this<group> {
        group(std::shared_ptr<family> f, int ranks) : relatives(std::move(f)), slots(static_cast<std::size_t>(ranks)) {}

        struct slot {
            const char* operation = nullptr;
            const std::byte* send = nullptr;
            std::size_t bytes = 0;
            std::span<const int> members;
            std::shared_ptr<group> child;
        };

        std::shared_ptr<family> relatives;
        std::vector<slot> slots;

        std::mutex mutex;
        std::condition_variable changed;
        std::size_t arrived = 0;
        std::uint64_t generation = 0;
        bool failed = false;
        std::string reason;

        void join_family() {
            const std::lock_guard lock(relatives->mutex);
            if (relatives->aborted) fail(relatives->reason);
            std::erase_if(relatives->groups, [](const auto& g) { return g.expired(); });
            relatives->groups.push_back(weak_from_this());
        }

        void fail(const std::string& why) {
            {
                const std::lock_guard lock(mutex);
                if (!failed) reason = why;
                failed = true;
            }
            changed.notify_all();
        }

        /// Returns when all ranks have called it.
        void meet() {
            std::unique_lock lock(mutex);
            if (failed) throw peer_error(reason);
            if (++arrived == slots.size()) {
                arrived = 0;
                ++generation;
                lock.unlock();
                changed.notify_all();
                return;
            }
            changed.wait(lock, [&, mine = generation] { return generation != mine || failed; });
            if (failed) throw peer_error(reason);
        }

        slot& at(int rank) { return slots[static_cast<std::size_t>(rank)]; }

        template <class Source>
        void exchange(int rank, const char* operation, const std::byte* send, std::byte* recv, std::size_t bytes,
                      Source source) {
            at(rank).operation = operation;
            at(rank).send = send;
            at(rank).bytes = bytes;
            meet();
            const std::string disagreement = compare();
            if (disagreement.empty()) {
                const int n = static_cast<int>(slots.size());
                for (int i = 0; i != n; ++i) {
                    const int from = (rank + i) % n;
                    const std::byte* data = source(at(from).send);
                    std::byte* to = recv + static_cast<std::size_t>(from) * bytes;
                    if (data != to && bytes != 0) std::memcpy(to, data, bytes);
                }
            }
            meet();
            if (!disagreement.empty()) throw precondition_error(disagreement);
        }

        /// How the ranks' operations differ; empty when they do not. The same text on every rank.
        std::string compare() const {
            const auto same = [&](const slot& s) {
                return std::strcmp(s.operation, slots[0].operation) == 0 && s.bytes == slots[0].bytes;
            };
            if (std::all_of(slots.begin(), slots.end(), same)) return {};
            std::string text = "thread_transport: expected the same operation on every rank, given";
            for (std::size_t r = 0; r != slots.size(); ++r) {
                text += (r == 0 ? " " : ", ") + std::string(slots[r].operation) + " of " + std::to_string(slots[r].bytes) +
                        " bytes on rank " + std::to_string(r);
            }
            return text;
        }

        std::shared_ptr<group> split(int rank, std::span<const int> members) {
            at(rank).members = members;
            meet();
            if (members.front() == rank) {
                at(rank).child = std::make_shared<group>(relatives, static_cast<int>(members.size()));
                at(rank).child->join_family();
            }
            meet();
            std::shared_ptr<group> child = at(members.front()).child;
            meet();
            at(rank).child = nullptr;
            return child;
        }
    };

    thread_transport(std::shared_ptr<group> g, int rank) : group_(std::move(g)), rank_(rank) {}

    std::shared_ptr<group> group_;
    int rank_;
};

/// Runs work(transport) on `ranks` threads, one for each rank, and waits for them. When ranks throw, the others are
/// released from their collectives with peer_error, and the exception of the lowest rank that failed by itself is thrown.
template <class Work>
void run_on_threads(int ranks, Work work) {
    std::vector<thread_transport> handles = thread_transport::create(ranks);
    std::vector<std::exception_ptr> own_failures(handles.size());
    std::vector<std::exception_ptr> peer_failures(handles.size());
    {
        std::vector<std::jthread> threads;
        for (std::size_t r = 0; r != handles.size(); ++r) {
            threads.emplace_back([&, r] {
                const std::string rank = "rank " + std::to_string(r);
                try {
                    work(handles[r]);
                } catch (const peer_error&) {
                    peer_failures[r] = std::current_exception();
                    handles[r].abort(rank + " was released from a collective that another rank left");
                } catch (const std::exception& e) {
                    own_failures[r] = std::current_exception();
                    handles[r].abort(rank + " failed: " + e.what());
                } catch (...) {
                    own_failures[r] = std::current_exception();
                    handles[r].abort(rank + " failed");
                }
            });
        }
    }
    for (const auto& failures : {own_failures, peer_failures}) {
        for (const auto& failure : failures) {
            if (failure) std::rethrow_exception(failure);
        }
    }
}

static_assert(std::copyable<thread_transport>);

}  // namespace zeropp
