#include <zeropp/execution/host.hpp>

#include <zeropp/execution/host_queue.hpp>

#include "conformance/execution_laws.hpp"
#include "support/catch.hpp"
#include "support/expectations.hpp"

#include <algorithm>
#include <atomic>
#include <functional>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

namespace {

using zeropp::host_queue;
using zeropp::host_threads;

struct three_threads : host_threads {
    three_threads() : host_threads(3) {}
};

struct queue_with_three : host_queue {
    queue_with_three() : host_queue(host_threads(3)) {}
};

/// On which threads on_each calls its argument, one entry for each call.
std::vector<std::thread::id> called_on(const host_threads& exec) {
    std::mutex mutex;
    std::vector<std::thread::id> threads;
    exec.on_each([&] {
        const std::lock_guard lock(mutex);
        threads.push_back(std::this_thread::get_id());
    });
    return threads;
}

}  // namespace

TEST_CASE("host_threads obeys the laws of host executions, and so does a queue with threads", "[execution][host]") {
    zeropp_test::execution_laws<three_threads>();
    zeropp_test::execution_laws<queue_with_three>();
}

TEST_CASE("host_threads calls its argument once on each thread, the calling one included", "[execution][host]") {
    for (const int threads : {1, 2, 5}) {
        const host_threads exec(threads);
        for (int round = 0; round != 200; ++round) {
            const auto ids = called_on(exec);
            const bool once_each = std::set(ids.begin(), ids.end()).size() == static_cast<std::size_t>(threads) &&
                                   ids.size() == static_cast<std::size_t>(threads);
            if (!once_each || std::count(ids.begin(), ids.end(), std::this_thread::get_id()) != 1) {
                FAIL(ids.size() << " calls for " << threads << " threads");
            }
        }
    }
}

TEST_CASE("callers of the same threads take turns", "[execution][host]") {
    const host_threads exec(3);
    std::atomic<int> inside = 0;
    std::atomic<int> calls = 0;
    std::atomic<bool> mixed = false;
    std::vector<std::thread> callers;
    for (int caller = 0; caller != 4; ++caller) {
        callers.emplace_back([&, mine = exec] {
            for (int i = 0; i != 100; ++i) {
                mine.on_each([&] {
                    inside.fetch_add(1);
                    ++calls;
                    std::this_thread::yield();
                    if (inside.load() > 3) mixed = true;
                    inside.fetch_sub(1);
                });
            }
        });
    }
    for (std::thread& caller : callers) caller.join();
    CHECK(calls == 4 * 100 * 3);
    CHECK_FALSE(mixed);
}

TEST_CASE("host_threads with another's threads leaves it to them", "[execution][host]") {
    int asked = 0;
    const host_threads exec([&](const std::function<void()>& work) {
        ++asked;
        std::thread other(work);
        work();
        other.join();
    });
    CHECK(called_on(exec).size() == 2);
    CHECK(asked == 1);
}

TEST_CASE("a runner that calls nothing is an error", "[execution][host]") {
    const host_threads exec([](const std::function<void()>&) {});
    CHECK(zeropp_test::thrown<zeropp::precondition_error>([&] { exec.on_each([] {}); }) ==
          "host_threads: expected a runner that calls what it is given, given none");
}

TEST_CASE("host_threads needs a thread", "[execution][host]") {
    CHECK(zeropp_test::thrown<zeropp::precondition_error>([] { host_threads(0); }) ==
          "host_threads: expected at least 1 thread, given 0");
    CHECK(host_queue().threads() == nullptr);
}
