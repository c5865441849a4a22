#include <zeropp/execution/host_queue.hpp>

#include "conformance/execution_laws.hpp"
#include "support/allocation_count.hpp"
#include "support/catch.hpp"
#include "support/expectations.hpp"
#include "support/watchdog.hpp"

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <future>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

using zeropp::host_queue;
using zeropp_test::thrown;
using zeropp_test::watchdog;
using namespace std::chrono_literals;

constexpr auto limit = 120s;
// How long "does not happen" is watched: too short can only miss a fault, never report one.
constexpr auto a_while = 30ms;

/// Work that waits in the queue until open() is called, or the gate is destroyed.
class gate {
public:
    ~gate() { open(); }
    void open() {
        if (!std::exchange(opened_, true)) opening_.set_value();
    }
    auto task() {
        return [opened = opening_.get_future().share()] { opened.wait(); };
    }

private:
    std::promise<void> opening_;
    bool opened_ = false;
};

auto throws(const std::string& reason) {
    return [text = reason] { throw std::runtime_error(text); };
}

bool is_ready(const std::future<void>& f) { return f.wait_for(a_while) == std::future_status::ready; }

}  // namespace

TEST_CASE("host_queue obeys the laws of host executions", "[execution][host_queue]") {
    const watchdog guard(limit, "the laws of host executions");
    zeropp_test::execution_laws<host_queue>();
}

TEST_CASE("host_queue runs work on a thread of its own and does not block who enqueues", "[execution][host_queue]") {
    const watchdog guard(limit, "enqueue behind a gate");
    gate closed;
    const host_queue queue;
    const host_queue other;
    std::thread::id ran_on;
    queue.enqueue(closed.task());
    queue.enqueue([&] { ran_on = std::this_thread::get_id(); });
    other.wait(queue.record());  // would never return if it blocked
    closed.open();
    queue.wait();
    CHECK(ran_on != std::thread::id());
    CHECK(ran_on != std::this_thread::get_id());
}

TEST_CASE("host_queue: an event is complete with the work before it, not earlier and not later",
          "[execution][host_queue]") {
    const watchdog guard(limit, "an event between two gates");
    gate first;
    gate second;
    const host_queue queue;
    queue.enqueue(first.task());
    const host_queue::event done = queue.record();
    queue.enqueue(second.task());
    std::future<void> waiting = std::async(std::launch::async, [&] { done.wait(); });
    CHECK_FALSE(is_ready(waiting));
    first.open();
    waiting.get();  // while the second gate is closed
    second.open();
    queue.wait();
    host_queue::event().wait();
}

TEST_CASE("host_queue: wait() waits for the last piece of work", "[execution][host_queue]") {
    const watchdog guard(limit, "wait() behind a gate");
    gate closed;
    const host_queue queue;
    queue.enqueue(closed.task());
    std::future<void> waiting = std::async(std::launch::async, [&] { queue.wait(); });
    CHECK_FALSE(is_ready(waiting));
    closed.open();
    waiting.get();
}

TEST_CASE("host_queue: another queue's event holds back later work only", "[execution][host_queue]") {
    const watchdog guard(limit, "a queue that waits for a gate in another");
    gate closed;
    const host_queue slow;
    const host_queue queue;
    slow.enqueue(closed.task());
    std::atomic<int> ran{0};
    queue.enqueue([&] { ran += 1; });
    const host_queue::event before = queue.record();
    queue.wait(slow.record());
    queue.enqueue([&] { ran += 10; });
    before.wait();
    std::this_thread::sleep_for(a_while);
    CHECK(ran.load() == 1);
    closed.open();
    queue.wait();
    CHECK(ran.load() == 11);
}

TEST_CASE("host_queue grows to any depth and keeps the order", "[execution][host_queue]") {
    const watchdog guard(limit, "100000 pieces of work");
    constexpr int count = 100000;
    gate closed;
    const host_queue queue;
    std::vector<int> order;
    order.reserve(count);
    const auto watched = std::make_shared<int>();
    // Seven first, so that the ring grows while its start is not at zero and a piece of work runs.
    for (int i = 0; i != 7; ++i) queue.enqueue([&order, i] { order.push_back(i); });
    queue.wait();
    queue.enqueue(closed.task());
    for (int i = 7; i != count; ++i) queue.enqueue([&order, i, watched] { order.push_back(i); });
    CHECK(watched.use_count() == 1 + count - 7);
    closed.open();
    queue.wait();
    CHECK(watched.use_count() == 1);
    REQUIRE(order.size() == static_cast<std::size_t>(count));
    int first_misplaced = 0;
    while (first_misplaced != count && order[static_cast<std::size_t>(first_misplaced)] == first_misplaced)
        ++first_misplaced;
    CHECK(first_misplaced == count);
}

TEST_CASE("host_queue holds callables of up to task_capacity bytes", "[execution][host_queue]") {
    const watchdog guard(limit, "a callable of task_capacity bytes");
    struct sums {
        int* result;
        std::array<std::byte, host_queue::task_capacity - sizeof(int*)> values;
        void operator()() const {
            for (const std::byte b : values) *result += std::to_integer<int>(b);
        }
    };
    STATIC_REQUIRE(sizeof(sums) == host_queue::task_capacity);
    int result = 0;
    sums work{&result, {}};
    int expected = 0;
    for (std::size_t i = 0; i != work.values.size(); ++i) {
        work.values[i] = static_cast<std::byte>(i);
        expected += static_cast<int>(i % 256);
    }
    gate closed;
    const host_queue queue;
    queue.enqueue(closed.task());
    for (int i = 0; i != 40; ++i) queue.enqueue(work);  // the ring grows meanwhile, and moves them
    closed.open();
    queue.wait();
    CHECK(result == 40 * expected);
}

TEST_CASE("host_queue allocates nothing once it has reached its working depth", "[execution][host_queue]") {
    if (!zeropp_test::counts_allocations()) {
        WARN("skipped: allocations cannot be counted here");
        return;
    }
    const watchdog guard(limit, "counting allocations");
    constexpr int depth = 100;
    const host_queue queue;
    const host_queue other;
    std::array<char, 200> large{};
    long sum = 0;
    const auto iteration = [&] {
        gate closed;
        const auto opens = closed.task();
        const std::size_t before = zeropp_test::allocation_count;
        queue.enqueue(opens);
        for (int i = 0; i != depth; ++i) queue.enqueue([&sum, large] { sum += 1 + large[0]; });
        other.wait(queue.record());
        other.enqueue([&sum] { sum += 1000; });
        queue.wait(other.record());
        closed.open();
        queue.wait();
        return zeropp_test::allocation_count - before;
    };
    CHECK(iteration() > 0);  // the ring grows: what this test counts is there to be counted
    for (int i = 0; i != 10; ++i) CHECK(iteration() == 0);
    CHECK(sum == 11 * (depth + 1000));
}

TEST_CASE("host_queue skips what is behind a failure until wait() has thrown it", "[execution][host_queue]") {
    const watchdog guard(limit, "work behind a failure");
    const host_queue queue;
    int ran = 0;
    const auto watched = std::make_shared<int>();
    queue.enqueue([&] { ran += 1; });
    queue.enqueue(throws("first"));
    queue.enqueue([&, watched] { ran += 10; });
    queue.enqueue(throws("second"));
    CHECK(thrown<std::runtime_error>([&] { queue.wait(); }) == "first");
    CHECK(ran == 1);
    CHECK(watched.use_count() == 1);
    queue.wait();
    queue.enqueue([&] { ran += 100; });
    queue.wait();
    CHECK(ran == 101);
}

TEST_CASE("host_queue: events tell failed and skipped work from what came before", "[execution][host_queue]") {
    const watchdog guard(limit, "events around a failure");
    const host_queue queue;
    queue.enqueue([] {});
    const host_queue::event before = queue.record();
    queue.enqueue(throws("reason"));
    const host_queue::event failed = queue.record();
    queue.enqueue([] {});
    const host_queue::event skipped = queue.record();
    for (int collected = 0; collected != 2; ++collected) {
        CHECK(thrown<std::runtime_error>([&] { before.wait(); }) == "<nothing thrown>");
        CHECK(thrown<std::runtime_error>([&] { failed.wait(); }) == "reason");
        CHECK(thrown<std::runtime_error>([&] { skipped.wait(); }) == "reason");
        if (collected == 0) CHECK(thrown<std::runtime_error>([&] { queue.wait(); }) == "reason");
    }
    queue.enqueue([] {});
    CHECK(thrown<std::runtime_error>([&] { queue.record().wait(); }) == "<nothing thrown>");
}

TEST_CASE("host_queue: an event of failed work still fails after later failures", "[execution][host_queue]") {
    const watchdog guard(limit, "events of three failures");
    const host_queue queue;
    std::vector<host_queue::event> events;
    for (int i = 0; i != 3; ++i) {
        queue.enqueue([] {});
        queue.enqueue(throws("failure " + std::to_string(i)));
        events.push_back(queue.record());
        CHECK(thrown<std::runtime_error>([&] { queue.wait(); }) == "failure " + std::to_string(i));
    }
    for (std::size_t i = 0; i != 3; ++i) {
        CHECK(thrown<std::runtime_error>([&] { events[i].wait(); }) == "failure " + std::to_string(i));
    }
}

TEST_CASE("host_queue: a queue that waits for failed work fails alike", "[execution][host_queue]") {
    const watchdog guard(limit, "a failure through three queues");
    const host_queue first;
    const host_queue second;
    const host_queue third;
    std::atomic<int> ran{0};
    first.enqueue(throws("at the source"));
    second.wait(first.record());
    second.enqueue([&] { ++ran; });
    third.wait(second.record());
    third.enqueue([&] { ++ran; });
    CHECK(thrown<std::runtime_error>([&] { third.wait(); }) == "at the source");
    CHECK(thrown<std::runtime_error>([&] { second.wait(); }) == "at the source");
    CHECK(thrown<std::runtime_error>([&] { first.wait(); }) == "at the source");
    CHECK(ran.load() == 0);
    // Each has been collected: work and events flow again.
    second.wait(first.record());
    third.wait(second.record());
    third.enqueue([&] { ++ran; });
    third.wait();
    CHECK(ran.load() == 1);
}

TEST_CASE("host_queue: what fails is not bound to std::exception", "[execution][host_queue]") {
    const watchdog guard(limit, "an int as exception");
    const host_queue queue;
    queue.enqueue([] { throw 42; });
    int caught = 0;
    try {
        queue.wait();
    } catch (int value) {
        caught = value;
    }
    CHECK(caught == 42);
}

TEST_CASE("host_queue: each of two threads in wait() learns of the failure", "[execution][host_queue]") {
    const watchdog guard(limit, "two threads in wait()");
    gate closed;
    const host_queue queue;
    queue.enqueue(closed.task());
    queue.enqueue(throws("for both"));
    std::array<std::future<std::string>, 2> waiting;
    for (auto& w : waiting) {
        w = std::async(std::launch::async, [&] { return thrown<std::runtime_error>([&] { queue.wait(); }); });
    }
    std::this_thread::sleep_for(a_while);  // both are waiting by now, or else the test says nothing
    closed.open();
    CHECK(waiting[0].get() == "for both");
    CHECK(waiting[1].get() == "for both");
    queue.wait();
}

TEST_CASE("host_queue takes work from several threads", "[execution][host_queue]") {
    const watchdog guard(limit, "four threads that enqueue");
    const host_queue queue;
    std::array<std::vector<int>, 4> seen;
    {
        std::vector<std::jthread> threads;
        for (auto& mine : seen) {
            threads.emplace_back([&] {
                for (int i = 0; i != 2000; ++i) queue.enqueue([&mine, i] { mine.push_back(i); });
            });
        }
    }
    queue.wait();
    for (const auto& mine : seen) {
        REQUIRE(mine.size() == 2000);
        int in_order = 0;
        for (int i = 0; i != 2000; ++i) in_order += mine[static_cast<std::size_t>(i)] == i;
        CHECK(in_order == 2000);
    }
}

TEST_CASE("host_queue: destruction lets enqueued work finish", "[execution][host_queue]") {
    const watchdog guard(limit, "destruction of a queue with work");
    gate closed;
    const auto watched = std::make_shared<int>();
    int ran = 0;
    std::future<void> opening;
    {
        const host_queue queue;
        queue.enqueue(closed.task());
        for (int i = 0; i != 1000; ++i) queue.enqueue([&ran, watched] { ++ran; });
        opening = std::async(std::launch::async, [&] {
            std::this_thread::sleep_for(a_while);
            closed.open();
        });
    }
    CHECK(ran == 1000);
    CHECK(watched.use_count() == 1);
}

TEST_CASE("host_queue: destruction swallows a failure, and skips behind it", "[execution][host_queue]") {
    const watchdog guard(limit, "destruction of a queue that fails");
    const auto watched = std::make_shared<int>();
    int ran = 0;
    {
        const host_queue queue;
        queue.enqueue([&] { ++ran; });
        queue.enqueue(throws("nobody asks"));
        queue.enqueue([&ran, watched] { ++ran; });
    }
    CHECK(ran == 1);
    CHECK(watched.use_count() == 1);
}

TEST_CASE("host_queue: events outlive their queue", "[execution][host_queue]") {
    const watchdog guard(limit, "events of a queue that is gone");
    host_queue::event succeeded;
    host_queue::event failed;
    {
        const host_queue queue;
        queue.enqueue([] {});
        succeeded = queue.record();
        queue.enqueue(throws("before the end"));
        failed = queue.record();
    }
    const host_queue other;
    int ran = 0;
    other.wait(succeeded);
    other.enqueue([&] { ++ran; });
    other.wait();
    CHECK(ran == 1);
    other.wait(failed);
    other.enqueue([&] { ++ran; });
    CHECK(thrown<std::runtime_error>([&] { other.wait(); }) == "before the end");
    CHECK(ran == 1);
}

TEST_CASE("host_queue: a queue may be destroyed while others wait for it", "[execution][host_queue]") {
    const watchdog guard(limit, "destruction under waiting queues");
    for (int round = 0; round != 100; ++round) {
        std::optional<host_queue> first(std::in_place);
        const host_queue second;
        int value = 0;
        first->enqueue([&] { value = 1; });
        second.wait(first->record());
        second.enqueue([&] { value += 1; });
        first.reset();
        second.wait();
        REQUIRE(value == 2);
    }
}
