#pragma once
/// \file
/// Meetings of ranks that are threads of one process, and their agreement on the ranks that are left after a failure.

#include <zeropp/core/error.hpp>
#include <zeropp/execution/host.hpp>
#include <zeropp/transport/deadline.hpp>
#include <zeropp/transport/operation.hpp>
#include <zeropp/transport/thread_agreement.hpp>
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
#include <utility>
#include <vector>

namespace zeropp::detail {

/// All groups of threads that were split from one another. They fail together.
struct thread_family {
    static constexpr const char* name = "thread_transport";
    using clock = std::chrono::steady_clock;

    struct group;

    thread_family(transport_options options, int ranks)
        : timeout(options.timeout), presence(static_cast<std::size_t>(ranks)) {}

    const std::chrono::milliseconds timeout;
    std::vector<thread_presence> presence;  // [r]: signs of life of world rank r
    std::mutex mutex;                       // guards the members below; locked before a group's mutex
    std::vector<std::weak_ptr<group>> groups;
    std::exception_ptr cause;     // the first failure
    clock::time_point failing{};  // begin of the wait that timed out, or time of another failure

    /// A family that survivors of this family have made by `shrink`.
    struct heir {
        std::weak_ptr<thread_family> family;
        std::vector<int> members;  // [r]: world rank that rank r of the heir has in this family
    };
    std::vector<heir> heirs;

    [[gnu::cold]] void fail(const std::exception_ptr& why) {
        {
            const std::lock_guard lock(mutex);
            note(why, clock::now());
        }
        end_groups();
    }

    /// Fails the family with the exception `why()`, because a rank has waited since `began` for meeting number
    /// `meeting` of the group `g`. Does nothing if that meeting has taken place meanwhile.
    template <class Why>
    void fail_unless_met(group& g, std::uint64_t meeting, clock::time_point began, Why why);

    /// Fails this family, and every family of survivors to which `rank` belongs.
    [[gnu::cold]] void abort(int rank, const std::exception_ptr& why) {
        fail(why);
        for (const auto& [family, its_rank] : heirs_of(rank)) family->abort(its_rank, why);
    }

    /// Notes that no thread of `rank` will call again, so that survivors do not wait for this rank.
    void leave(int rank) {
        presence[static_cast<std::size_t>(rank)].leave();
        for (const auto& [family, its_rank] : heirs_of(rank)) family->leave(its_rank);
    }

private:
    /// Keeps `why` if it is the first failure. Requires the lock on `mutex`.
    void note(const std::exception_ptr& why, clock::time_point since) {
        if (cause) return;
        cause = why;
        failing = since;
    }

    /// Makes waiting and later meetings of all groups throw `cause`, which is set and does not change any more.
    void end_groups();

    /// Families of survivors to which `rank` belongs, and the rank's number in each.
    std::vector<std::pair<std::shared_ptr<thread_family>, int>> heirs_of(int rank) {
        const std::lock_guard lock(mutex);
        std::vector<std::pair<std::shared_ptr<thread_family>, int>> found;
        for (const heir& h : heirs) {
            const auto self = std::find(h.members.begin(), h.members.end(), rank);
            auto family = h.family.lock();
            if (family && self != h.members.end()) {
                found.emplace_back(std::move(family), static_cast<int>(self - h.members.begin()));
            }
        }
        return found;
    }
};

/// A group of ranks that meet before each operation. All its ranks share one object.
struct thread_family::group : std::enable_shared_from_this<group> {
    group(std::shared_ptr<thread_family> f, std::vector<int> ranks)
        : relatives(std::move(f)), slots(ranks.size()), world_ranks(std::move(ranks)) {}

    /// Makes a group of `ranks`, world ranks of the family `f`.
    static std::shared_ptr<group> make(std::shared_ptr<thread_family> f, std::vector<int> ranks) {
        auto made = std::make_shared<group>(std::move(f), std::move(ranks));
        made->join_family();
        return made;
    }

    struct slot {
        operation_in_call what;
        const std::byte* send = nullptr;
        // Pointers to events of the execution's type, which is equal on all ranks.
        const void* ready = nullptr;  // after this event, other ranks can read `send`
        const void* done = nullptr;   // before this event, this rank has copied from all others
        std::span<const int> members = {};
        std::weak_ptr<group> child = {};
    };

    std::shared_ptr<thread_family> relatives;
    std::vector<slot> slots;
    std::vector<int> world_ranks;  // [r]: world rank of rank r

    std::mutex mutex;
    std::condition_variable changed;
    std::size_t arrived = 0;
    std::uint64_t generation = 0;
    std::vector<char> met = std::vector<char>(slots.size());  // [r] != 0: rank r has come to the next meeting
    std::exception_ptr cause;                                 // the failure after which no meeting takes place

    thread_agreement agreement{slots.size()};
    std::shared_ptr<group> survivors;                            // group of the survivors, which the agreement makes
    std::vector<char> shrunk = std::vector<char>(slots.size());  // [r] != 0: rank r has got `survivors`

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

    /// Counts this rank's arrival at a meeting. Returns true to the last rank, which releases the others. Requires
    /// `mutex` locked.
    bool last_to_arrive() {
        if (++arrived != slots.size()) return false;
        arrived = 0;
        ++generation;
        changed.notify_all();
        return true;
    }

    /// Returns when all ranks of the group have called `meet`. Throws the family's failure if that comes first.
    void meet(int rank, const operation_in_call& what) {
        const auto began = clock::now();
        const auto deadline = deadline_after(relatives->timeout, began);
        std::unique_lock lock(mutex);
        if (cause) std::rethrow_exception(cause);
        const std::uint64_t mine = generation;
        met[static_cast<std::size_t>(rank)] = true;
        if (last_to_arrive()) {
            std::fill(met.begin(), met.end(), 0);
            return;
        }
        const auto over = [&] { return generation != mine || cause; };
        if (deadline == no_deadline) {
            changed.wait(lock, over);
        } else if (!changed.wait_until(lock, deadline, over)) {
            lock.unlock();
            relatives->fail_unless_met(*this, mine, began, [&] {
                return timed_out(name, relatives->timeout, what.text(), not_heard_from(missing()));
            });
            lock.lock();
        }
        if (generation == mine) std::rethrow_exception(cause);
    }

    /// World ranks of this group that have not come to the next meeting.
    [[gnu::cold]] std::vector<int> missing() const {
        std::vector<int> ranks;
        for (std::size_t r = 0; r != met.size(); ++r) {
            if (!met[r]) ranks.push_back(world_ranks[r]);
        }
        return ranks;
    }

    /// Scope after a meeting, which all ranks leave together. In this scope ranks read each other's memory. So none may
    /// leave before the others are done, even after a failure. The destructor cannot hang, because every rank comes to
    /// it.
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
    int world_rank(int rank) const { return world_ranks[static_cast<std::size_t>(rank)]; }
    thread_presence& presence_of(int rank) const {
        return relatives->presence[static_cast<std::size_t>(world_rank(rank))];
    }

    /// Meets the other ranks for the operation `what`, and enqueues on `exec` the copies of all messages to this rank.
    /// Streams wait for one another by events. The calling thread waits for the other ranks, and not for work on
    /// streams.
    template <class E>
    void exchange(const E& exec, int rank, const operation_in_call& what, const std::byte* send, std::byte* recv) {
        const thread_presence::in_operation here(presence_of(rank));
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
            // Waits without `meet`, which can throw. A rank with a failure must come too, because the others wait for
            // its event.
            {
                const together until_all_have_recorded(*this);
            }
            for (const slot& s : slots) exec.wait(*static_cast<const event*>(s.done));
        }
        if (failure) std::rethrow_exception(failure);
    }

    /// Makes the group of `members`, ranks of this group, and returns one object to all of them.
    std::shared_ptr<group> split(int rank, const operation_in_call& what, std::span<const int> members) {
        const thread_presence::in_operation here(presence_of(rank));
        // The first rank of a list makes the group before the meeting: the others take the group right after it.
        std::shared_ptr<group> own;
        if (!members.empty() && members.front() == rank) {
            own = make(relatives, std::vector<int>(members.size()));
        }
        at(rank) = {.what = what, .members = members, .child = own};
        meet(rank, what);
        const together until_all_are_done(*this);
        require_same_operation();
        require_members();
        if (own) {
            std::transform(members.begin(), members.end(), own->world_ranks.begin(),
                           [this](int member) { return world_rank(member); });
        }
        return at(members.front()).child.lock();
    }

    /// Fails the family and agrees on the survivors. Returns the survivors' group, and their ranks in this group.
    std::pair<std::shared_ptr<group>, std::vector<int>> shrink(int rank, std::span<const int> excluded) {
        require_excluded(name, excluded, rank, static_cast<int>(slots.size()));
        relatives->fail(std::make_exception_ptr(
            peer_error(std::string(name) + ": rank " + std::to_string(world_rank(rank)) + " has called shrink")));
        const auto since = relatives->failing;  // read without a lock: only the first failure sets it
        const auto is_dead = [&](int r) { return presence_of(r).is_dead(since, relatives->timeout); };
        auto ranks = agreement.agree(rank, excluded, is_dead, [&](const auto& those) { make_survivors(those); });
        if (!std::binary_search(ranks.begin(), ranks.end(), rank)) {
            throw left_out(name, world_rank(rank), detail::world_ranks(world_ranks, ranks));
        }
        if (std::exchange(shrunk[static_cast<std::size_t>(rank)], true)) {
            throw precondition_error(name, "one shrink of each transport", "another one");
        }
        return {survivors, std::move(ranks)};
    }

    /// Makes the group of the survivors `ranks`, in a new family.
    void make_survivors(const std::vector<int>& ranks) {
        if (ranks.empty()) return;
        // A sign of life: survivors may next shrink another transport of this family, one rank after the other.
        for (const int r : ranks) presence_of(r).hear();
        const int size = static_cast<int>(ranks.size());
        const auto family = std::make_shared<thread_family>(transport_options{relatives->timeout}, size);
        survivors = make(family, detail::world_ranks(size));
        const std::lock_guard lock(relatives->mutex);
        relatives->heirs.push_back({family, detail::world_ranks(world_ranks, ranks)});
    }

    /// Throws precondition_error with the operations of all ranks if these differ.
    void require_same_operation() const {
        const operation& first = slots.front().what;
        if (std::all_of(slots.begin(), slots.end(), [&](const slot& s) { return first == s.what; })) return;
        throw_given("the same operation on every rank", [](const slot& s) { return s.what.operation::text(); });
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
            bool agreed = times(static_cast<int>(r)) == 1;
            for (const int m : list) agreed = agreed && gave_it_too(m);
            if (agreed) continue;
            throw_given("the same list of ranks on each rank in it, itself among them",
                        [](const slot& s) { return "split {" + text_of(s.members) + "}"; });
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

template <class Why>
[[gnu::cold]] void thread_family::fail_unless_met(group& g, std::uint64_t meeting, clock::time_point began, Why why) {
    {
        const std::scoped_lock lock(mutex, g.mutex);
        if (g.generation != meeting) return;
        if (!cause) note(std::make_exception_ptr(why()), began);
        g.cause = cause;
    }
    end_groups();
}

[[gnu::cold]] inline void thread_family::end_groups() {
    std::vector<std::shared_ptr<group>> all;
    {
        const std::lock_guard lock(mutex);
        for (const auto& g : groups) all.push_back(g.lock());
    }
    for (const auto& g : all) {
        if (g) g->fail(cause);
    }
}

}  // namespace zeropp::detail
