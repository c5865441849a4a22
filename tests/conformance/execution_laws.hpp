#pragma once
/// \file
/// Laws of host executions, immediate or asynchronous.

#include "support/catch.hpp"
#include "support/expectations.hpp"

#include <zeropp/execution/execution.hpp>

#include <array>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

namespace zeropp_test {

/// After wait(), enqueued work has run in order.
template <zeropp::host_execution Execution>
void runs_in_order() {
    const Execution exec;
    std::vector<int> order;
    for (int i = 0; i != 1000; ++i) exec.enqueue([&order, i] { order.push_back(i); });
    exec.wait();
    std::vector<int> expected(1000);
    std::iota(expected.begin(), expected.end(), 0);
    CHECK(order == expected);
}

/// Waiting returns if there is no work.
template <zeropp::host_execution Execution>
void waits_for_nothing() {
    const Execution exec;
    const Execution other;
    exec.wait();
    exec.wait();
    const typename Execution::event before_any_work = exec.record();
    exec.wait(before_any_work);
    other.wait(before_any_work);
    other.wait(typename Execution::event());
    int ran = 0;
    other.enqueue([&] { ++ran; });
    other.wait();
    CHECK(ran == 1);
}

/// Work behind an event starts after the work before it, on any execution. Two executions that change a value in turns
/// see every change, without other synchronisation.
template <zeropp::host_execution Execution>
void orders_work_by_events() {
    const Execution ping;
    const Execution pong;
    long value = 0;
    for (int i = 0; i != 1000; ++i) {
        ping.enqueue([&] { value += 1; });
        pong.wait(ping.record());
        pong.enqueue([&] { value *= -3; });
        ping.wait(pong.record());
        ping.enqueue([&] { value %= 1000003; });
    }
    ping.wait();
    long expected = 0;
    for (int i = 0; i != 1000; ++i) expected = (expected + 1) * -3 % 1000003;
    CHECK(value == expected);
}

/// An event covers the work enqueued before it. It can be waited for often, late, on its own execution and as a copy.
template <zeropp::host_execution Execution>
void events_are_values() {
    const Execution exec;
    const Execution other;
    int value = 0;
    exec.enqueue([&] { value = 7; });
    const typename Execution::event done = exec.record();
    const typename Execution::event copy = done;
    exec.wait(done);
    exec.wait(copy);
    int seen = 0;
    other.wait(copy);
    other.wait(done);
    other.enqueue([&] { seen = value; });
    other.wait();
    CHECK(seen == 7);
    exec.wait();
    other.wait(done);
    other.wait();
}

/// An exception of work leaves enqueue or wait(), once; then the execution works again.
template <zeropp::host_execution Execution>
void failures_reach_the_caller() {
    const Execution exec;
    for (int round = 0; round != 3; ++round) {
        const std::string reason = "round " + std::to_string(round);
        const auto fails = [&] {
            exec.enqueue([&reason] { throw std::runtime_error(reason); });
            exec.wait();
        };
        CHECK(thrown<std::runtime_error>(fails) == reason);
        exec.wait();
        int ran = 0;
        exec.enqueue([&] { ++ran; });
        exec.wait();
        CHECK(ran == 1);
    }
}

/// An event recorded after a failure was collected is not failed.
template <zeropp::host_execution Execution>
void collected_failures_stay_in_the_past() {
    const Execution exec;
    const Execution other;
    const auto fails = [&] {
        exec.enqueue([] { throw std::runtime_error("once"); });
        exec.wait();
    };
    CHECK(thrown<std::runtime_error>(fails) == "once");
    int ran = 0;
    other.wait(exec.record());
    other.enqueue([&] { ++ran; });
    CHECK(thrown<std::runtime_error>([&] { other.wait(); }) == "<nothing thrown>");
    CHECK(ran == 1);
}

/// Callables that can only be moved run, see the objects they own, and are destroyed once.
template <zeropp::host_execution Execution>
void takes_ownership() {
    const auto watched = std::make_shared<int>(5);
    {
        const Execution exec;
        int seen = 0;
        auto owned = std::make_unique<int>(42);
        exec.enqueue([&seen, held = std::move(owned), watched] { seen = *held; });
        exec.wait();
        CHECK(seen == 42);
        // An execution destroys work that has run, before its own end.
        CHECK(watched.use_count() == 1);
    }
    CHECK(watched.use_count() == 1);
}

/// A function object passed as an lvalue is copied, so that it can be enqueued again.
template <zeropp::host_execution Execution>
void copies_what_is_not_moved() {
    const Execution exec;
    std::array<int, 8> values{1, 2, 3, 4, 5, 6, 7, 8};
    int sum = 0;
    const auto work = [values, &sum] { sum += std::accumulate(values.begin(), values.end(), 0); };
    exec.enqueue(work);
    values.fill(0);
    exec.enqueue(work);
    exec.wait();
    CHECK(sum == 72);
}

/// All laws of host executions.
template <zeropp::host_execution Execution>
void execution_laws() {
    runs_in_order<Execution>();
    waits_for_nothing<Execution>();
    orders_work_by_events<Execution>();
    events_are_values<Execution>();
    failures_reach_the_caller<Execution>();
    collected_failures_stay_in_the_past<Execution>();
    takes_ownership<Execution>();
    copies_what_is_not_moved<Execution>();
}

}  // namespace zeropp_test
