#pragma once
/// \file
/// NCCL ranks that are threads of this process, on the emulated device. `Nccl` is nccl_transport, as compiled with one
/// version of NCCL or another.

#include "simt/collectives.hpp"
#include "simt/device.hpp"
#include "simt/nccl_doubles.hpp"
#include "support/catch.hpp"
#include "support/expectations.hpp"

#include <zeropp/transport/nccl.hpp>

#include <algorithm>
#include <cstddef>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace zeropp_test::simt {

/// The id that rank 0 makes, on all ranks.
template <class Nccl>
ncclUniqueId shared_id(zeropp::thread_transport& world) {
    ncclUniqueId id{};
    if (world.rank() == 0) id = Nccl::unique_id();
    std::vector<ncclUniqueId> ids(static_cast<std::size_t>(world.size()));
    world.all_gather(zeropp::host(), reinterpret_cast<const std::byte*>(&id), reinterpret_cast<std::byte*>(ids.data()),
                     sizeof id);
    return ids[0];
}

template <class Nccl>
Nccl connect(zeropp::thread_transport& world) {
    return Nccl::create(shared_id<Nccl>(world), world.size(), world.rank());
}

inline std::byte* bytes_of(const device_array<int>& a) { return reinterpret_cast<std::byte*>(a.data()); }

/// What a rank sends: a number for each rank, another one on each sender.
inline std::vector<int> numbers_of(int rank, int ranks) {
    std::vector<int> numbers;
    for (int r = 0; r != ranks; ++r) numbers.push_back(100 * rank + r);
    return numbers;
}

/// Checks both operations on `transport`, whose ranks are the world's `members` in this order.
template <class Nccl>
void check_operations(Nccl& transport, const std::vector<int>& members, expectations& expect) {
    const owned_stream stream;
    const int size = transport.size();
    const auto count = static_cast<std::size_t>(size);
    expect.equal(count, members.size());
    const int self = members[static_cast<std::size_t>(transport.rank())];
    const device_array<int> send(numbers_of(self, size));
    const device_array<int> exchanged(count);
    const device_array<int> gathered(count);
    transport.all_to_all(stream.exec(), bytes_of(send), bytes_of(exchanged), sizeof(int));
    transport.all_gather(stream.exec(), bytes_of(exchanged), bytes_of(gathered), sizeof(int));
    expect(pending(stream.native()) >= 1, "an operation that is enqueued and not done");
    stream.exec().wait();
    std::vector<int> from_each;
    for (const int m : members) from_each.push_back(100 * m + transport.rank());
    expect(exchanged.read() == from_each, "what every rank has for this one");
    std::vector<int> first_of_each;
    for (int r = 0; r != size; ++r) first_of_each.push_back(100 * members[0] + r);
    expect(gathered.read() == first_of_each, "what every rank has received first");
    // Of every number of roots; others send nothing, from nowhere.
    for (int roots = 1; roots <= size; ++roots) {
        const bool is_root = transport.rank() < roots;
        const device_array<int> mine(std::vector<int>{100 * self + roots});
        const device_array<int> apart(static_cast<std::size_t>(roots));
        const device_array<int> in_place(std::vector<int>(static_cast<std::size_t>(roots), 100 * self + roots));
        std::byte* const own = bytes_of(in_place) + static_cast<std::size_t>(transport.rank()) * sizeof(int);
        transport.broadcast(stream.exec(), is_root ? bytes_of(mine) : nullptr, bytes_of(apart), sizeof(int), roots);
        transport.broadcast(stream.exec(), is_root ? own : nullptr, bytes_of(in_place), sizeof(int), roots);
        stream.exec().wait();
        std::vector<int> of_roots;
        for (int r = 0; r != roots; ++r) of_roots.push_back(100 * members[static_cast<std::size_t>(r)] + roots);
        expect(apart.read() == of_roots, "what roots have");
        expect(in_place.read() == of_roots, "what roots have, in place");
        expect(apart.intact() && in_place.intact(), "no byte beside the arrays of a broadcast");
    }
    expect(exchanged.intact() && gathered.intact() && send.intact(), "no byte beside the arrays");
}

/// Checks, when it ends, that the device has no fault and that nothing lives which was made since it began.
class leaves_nothing {
public:
    leaves_nothing() = default;
    leaves_nothing(const leaves_nothing&) = delete;
    leaves_nothing& operator=(const leaves_nothing&) = delete;
    ~leaves_nothing() {
        CHECK(device_fault() == "");
        CHECK(live() == before_);
        CHECK(live_communicators() == 0);
        recover();
    }

private:
    const live_objects before_ = live();
};

/// Runs work(transport, world, expect) on six ranks and checks that nothing is left over.
template <class Nccl, class Work>
void on_six_ranks(const std::string& what, Work work) {
    const leaves_nothing after;
    expectations expect;
    on_ranks({"six ranks", {1, 6}}, what, [&](zeropp::thread_transport& world) {
        Nccl transport = connect<Nccl>(world);
        work(transport, world, expect);
    });
    CHECK(expect.unmet() == "");
}

/// All operations on the world, its splits, their splits, and backwards.
template <class Nccl>
void check_splits() {
    on_six_ranks<Nccl>("operations and splits", [](Nccl& transport, zeropp::thread_transport&, expectations& expect) {
        const int rank = transport.rank();
        check_operations(transport, {0, 1, 2, 3, 4, 5}, expect);
        const std::vector<int> row = rank % 2 == 0 ? std::vector<int>{4, 0, 2} : std::vector<int>{1, 5, 3};
        Nccl part = transport.split(row);
        check_operations(part, row, expect);
        const std::vector<int> pair = part.rank() == 1 ? std::vector<int>{1} : std::vector<int>{2, 0};
        Nccl nested = part.split(pair);
        std::vector<int> members;
        for (const int p : pair) members.push_back(row[static_cast<std::size_t>(p)]);
        check_operations(nested, members, expect);
        Nccl backwards = transport.split(std::vector<int>{5, 4, 3, 2, 1, 0});
        check_operations(backwards, {5, 4, 3, 2, 1, 0}, expect);
        check_operations(part, row, expect);
        const std::string error =
            thrown<zeropp::precondition_error>([&] { transport.split(std::vector<int>{(rank + 1) % 6}); });
        expect.equal(error,
                     "nccl_transport: expected a split list with rank " + std::to_string(rank) + ", given one without");
        transport.check();
    });
}

/// One rank's entry point fails in `call(transport, stream, send, received)`: that rank throws NCCL's text, the others
/// notice that it has left, all abort their communicators and no stream is left with work that never ends.
template <class Nccl, class Call>
void check_failure(const std::string& entry_point, Call call) {
    INFO(entry_point << " fails");
    const std::size_t aborted = calls("ncclCommAbort");
    std::mutex mutex;
    std::vector<std::string> texts;
    on_six_ranks<Nccl>(
        "a failure in " + entry_point, [&](Nccl& transport, zeropp::thread_transport& world, expectations& expect) {
            const owned_stream stream;
            const device_array<int> send(numbers_of(transport.rank(), 6));
            const device_array<int> received(6);
            if (transport.rank() == 0) fail_next(entry_point, ncclSystemError);
            meet(world);
            const std::string first = thrown<zeropp::nccl_error>([&] {
                call(transport, stream.exec(), bytes_of(send), bytes_of(received));
                for (;;) {
                    transport.check();
                    std::this_thread::yield();
                }
            });
            // The same error for ever after, and the stream's work has ended.
            const auto again = [&] { transport.all_gather(stream.exec(), bytes_of(send), bytes_of(received), 4); };
            expect.equal(thrown<zeropp::nccl_error>(again), first);
            expect.equal(thrown<zeropp::nccl_error>([&] { transport.check(); }), first);
            stream.exec().wait();
            const std::lock_guard lock(mutex);
            texts.push_back(first);
        });
    const std::string own = entry_point + ": unhandled system error (run with NCCL_DEBUG=INFO for details) (";
    const std::string others = "an earlier NCCL operation: remote process exited or there was a network error (";
    CHECK(std::count_if(texts.begin(), texts.end(), [&](const auto& t) { return t.starts_with(own); }) == 1);
    CHECK(std::count_if(texts.begin(), texts.end(), [&](const auto& t) {
              return t.starts_with(others) || t.starts_with("ncclAllGather: remote process exited");
          }) == 5);
    CHECK(calls("ncclCommAbort") == aborted + 6);
}

}  // namespace zeropp_test::simt
