#include <zeropp/transport/threads.hpp>

#include "conformance/delivery_laws.hpp"
#include "conformance/error_laws.hpp"
#include "conformance/transport_laws.hpp"
#include "support/catch.hpp"
#include "support/expectations.hpp"
#include "support/on_threads.hpp"
#include "support/watchdog.hpp"

#include <zeropp/execution/host.hpp>
#include <zeropp/execution/host_queue.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstring>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace {

using zeropp::host;
using zeropp::host_queue;
using zeropp::peer_error;
using zeropp::precondition_error;
using zeropp::thread_transport;
using zeropp_test::expectations;
using zeropp_test::gathers;
using zeropp_test::on_threads;
using zeropp_test::same_on_every_rank;
using zeropp_test::thrown;
using zeropp_test::watchdog;
using namespace std::chrono_literals;

static_assert(std::copyable<thread_transport>);

/// Runs work(transport, expect) on `ranks` threads, of which some throw, and returns what run_on_threads throws.
template <class Error, class Work>
std::string failure_of(int ranks, Work work) {
    const watchdog guard(120s, "ranks that fail");
    expectations expect;
    const std::string text =
        thrown<Error>([&] { zeropp::run_on_threads(ranks, [&](thread_transport& world) { work(world, expect); }); });
    CHECK(expect.unmet() == "");
    return text;
}

template <class Execution>
void gather_on(const Execution& exec, thread_transport& world, std::vector<std::byte>& memory) {
    memory.resize(static_cast<std::size_t>(world.size()));
    world.all_gather(exec, memory.data() + world.rank(), memory.data(), 1);
    exec.wait();
}

/// Bytes that change before they are given back, so that a rank that still reads them sees it.
class spoilt_in_the_end {
public:
    spoilt_in_the_end(std::size_t size, std::byte value) : bytes_(size, value) {}
    ~spoilt_in_the_end() { std::fill(bytes_.begin(), bytes_.end(), std::byte{0xee}); }
    spoilt_in_the_end(const spoilt_in_the_end&) = delete;
    spoilt_in_the_end& operator=(const spoilt_in_the_end&) = delete;

    const std::byte* data() const { return bytes_.data(); }

private:
    std::vector<std::byte> bytes_;
};

template <class Execution>
void others_are_released() {
    std::atomic<int> released{0};
    const std::string text = failure_of<std::runtime_error>(4, [&](thread_transport& world, expectations& expect) {
        std::vector<std::byte> memory;
        const Execution exec;
        gather_on(exec, world, memory);
        if (world.rank() == 2) throw std::runtime_error("out of luck");
        // Those that wait are released, and later calls throw at once.
        for (int call = 0; call != 3; ++call) {
            const std::string reason = thrown<peer_error>([&] { gather_on(exec, world, memory); });
            expect.equal(reason, "rank 2 failed: out of luck");
            released += reason == "rank 2 failed: out of luck";
        }
        expect.equal(thrown<peer_error>([&] { world.split(std::vector<int>{world.rank()}); }),
                     "rank 2 failed: out of luck");
    });
    CHECK(text == "out of luck");
    CHECK(released.load() == 9);
}

}  // namespace

TEST_CASE("thread_transport numbers its handles, and copies are the same rank", "[transport][threads]") {
    const std::vector<thread_transport> handles = thread_transport::create(3);
    REQUIRE(handles.size() == 3);
    for (int r = 0; r != 3; ++r) {
        const thread_transport copy = handles[static_cast<std::size_t>(r)];
        CHECK(copy.rank() == r);
        CHECK(copy.size() == 3);
    }
    on_threads(2, "copies of handles", [](thread_transport& world, expectations& expect) {
        thread_transport copy = world;
        gathers<host>(world.rank() == 0 ? world : copy, expect, 10);
    });
}

TEST_CASE("thread_transport refuses to have no ranks", "[transport][threads]") {
    CHECK(thrown<precondition_error>([] { thread_transport::create(0); }) ==
          "thread_transport: expected at least 1 rank, given 0");
    CHECK(thrown<precondition_error>([] { thread_transport::create(-2); }) ==
          "thread_transport: expected at least 1 rank, given -2");
    CHECK(thrown<precondition_error>([] { zeropp::run_on_threads(0, [](thread_transport&) {}); }) ==
          "thread_transport: expected at least 1 rank, given 0");
}

TEST_CASE("run_on_threads runs every rank once, on threads of their own", "[transport][threads]") {
    std::array<std::thread::id, 5> ran_on;
    zeropp::run_on_threads(5, [&](thread_transport& world) {
        ran_on[static_cast<std::size_t>(world.rank())] = std::this_thread::get_id();
    });
    std::set<std::thread::id> ids(ran_on.begin(), ran_on.end());
    ids.insert(std::this_thread::get_id());
    ids.insert(std::thread::id());
    CHECK(ids.size() == 7);
}

TEST_CASE("a rank that throws releases the others, and its exception comes out", "[transport][threads]") {
    SECTION("from host") { others_are_released<host>(); }
    SECTION("from host_queue") { others_are_released<host_queue>(); }
}

TEST_CASE("a rank that throws releases ranks that wait in splits it has no part in", "[transport][threads]") {
    const std::string text = failure_of<std::runtime_error>(4, [](thread_transport& world, expectations& expect) {
        const int rank = world.rank();
        thread_transport pair = world.split(rank < 2 ? std::vector<int>{0, 1} : std::vector<int>{2, 3});
        if (rank == 0) throw std::runtime_error("rank 0 is out");
        std::vector<std::byte> memory;
        if (rank == 2) {
            // Rank 3 never comes to a second gather: it has left for the world.
            gather_on(host(), pair, memory);
            expect.equal(thrown<peer_error>([&] { gather_on(host(), pair, memory); }), "rank 0 failed: rank 0 is out");
        }
        if (rank == 3) {
            thrown<peer_error>([&] { gather_on(host(), pair, memory); });
            expect.equal(thrown<peer_error>([&] { gather_on(host(), world, memory); }), "rank 0 failed: rank 0 is out");
        }
        if (rank == 1) {
            expect.equal(thrown<peer_error>([&] { world.split(std::vector<int>{0, 1, 2, 3}); }),
                         "rank 0 failed: rank 0 is out");
        }
    });
    CHECK(text == "rank 0 is out");
}

TEST_CASE("of ranks that fail by themselves, the lowest one's exception comes out", "[transport][threads]") {
    for (int round = 0; round != 20; ++round) {
        CHECK(failure_of<std::runtime_error>(4, [](thread_transport& world, expectations&) {
                  std::vector<std::byte> memory;
                  if (world.rank() == 0) gather_on(host(), world, memory);  // peer_error, not a failure of its own
                  throw std::runtime_error("rank " + std::to_string(world.rank()));
              }) == "rank 1");
    }
}

TEST_CASE("a rank that is released and says nothing else makes run_on_threads throw peer_error",
          "[transport][threads]") {
    CHECK(failure_of<peer_error>(3, [](thread_transport& world, expectations&) {
              std::vector<std::byte> memory;
              if (world.rank() == 1) world.abort("enough");
              gather_on(host(), world, memory);
          }) == "enough");
}

TEST_CASE("exceptions of any type release the other ranks", "[transport][threads]") {
    const watchdog guard(120s, "a rank that throws an int");
    std::array<std::string, 2> reasons;
    int caught = 0;
    try {
        zeropp::run_on_threads(2, [&](thread_transport& world) {
            std::vector<std::byte> memory;
            if (world.rank() == 0) throw 42;
            reasons[1] = thrown<peer_error>([&] { gather_on(host(), world, memory); });
        });
    } catch (int value) {
        caught = value;
    }
    CHECK(caught == 42);
    CHECK(reasons[1] == "rank 0 failed");
}

TEST_CASE("abort releases every rank with the first reason", "[transport][threads]") {
    const watchdog guard(120s, "abort");
    std::vector<thread_transport> handles = thread_transport::create(3);
    std::array<std::string, 2> reasons;
    {
        std::vector<std::jthread> threads;
        for (std::size_t r = 0; r != 2; ++r) {
            threads.emplace_back([&, r] {
                std::vector<std::byte> memory;
                reasons[r] = thrown<peer_error>([&] { gather_on(host(), handles[r], memory); });
            });
        }
        std::this_thread::sleep_for(20ms);
        handles[2].abort("the first");
        handles[2].abort("the second");
    }
    CHECK(reasons[0] == "the first");
    CHECK(reasons[1] == "the first");
    CHECK(thrown<peer_error>([&] { handles[2].split(std::vector<int>{2}); }) == "the first");
}

// A rank that is released must not take its memory along while another still reads it, and what one rank has seen
// happen has happened on all.
TEST_CASE("under an abort, an operation happens on all of its ranks or on none", "[transport][threads]") {
    // Large, so that an abort is likely to come while ranks read each other's memory.
    constexpr std::size_t bytes = std::size_t{1} << 21;
    const std::vector<std::byte> untouched(2 * bytes);
    std::vector<std::byte> expected(2 * bytes, std::byte{1});
    std::fill(expected.begin() + bytes, expected.end(), std::byte{2});
    constexpr int rounds = 20;
    for (int round = 0; round != rounds; ++round) {
        std::array<std::atomic<int>, 2> completed{};
        std::atomic<std::chrono::steady_clock::duration> one_round{};
        const std::string text = failure_of<std::runtime_error>(3, [&](thread_transport& world, expectations& expect) {
            const int rank = world.rank();
            thread_transport part = world.split(rank < 2 ? std::vector<int>{0, 1} : std::vector<int>{2});
            if (rank == 2) {
                while (completed[0] < 1) std::this_thread::yield();
                // At another moment of the others' round each time.
                std::this_thread::sleep_for(one_round.load() * (round + 1) / rounds);
                throw std::runtime_error("now");
            }
            for (;;) {
                const auto start = std::chrono::steady_clock::now();
                const spoilt_in_the_end send(bytes, static_cast<std::byte>(rank + 1));
                std::vector<std::byte> received(2 * bytes);
                const auto gather = [&] { part.all_gather(host(), send.data(), received.data(), bytes); };
                if (thrown<peer_error>(gather) != "<nothing thrown>") {
                    expect(std::memcmp(received.data(), untouched.data(), 2 * bytes) == 0,
                           "no trace of what has not happened");
                    throw peer_error("released");
                }
                expect(std::memcmp(received.data(), expected.data(), 2 * bytes) == 0, "both ranks' bytes");
                if (rank == 0) one_round = std::chrono::steady_clock::now() - start;
                ++completed[static_cast<std::size_t>(rank)];
            }
        });
        CHECK(text == "now");
        CHECK(completed[0].load() == completed[1].load());
    }
}

TEST_CASE("operations that differ are the same error on every rank, which can go on", "[transport][threads]") {
    on_threads(3, "operations that differ", [](thread_transport& world, expectations& expect) {
        const auto r = static_cast<std::size_t>(world.rank());
        std::vector<std::byte> send(3 * 64);
        std::vector<std::byte> received(3 * 64, std::byte{7});
        const std::vector<std::byte> untouched = received;
        const auto on_host = [&](auto operation) {
            const std::string error = thrown<precondition_error>(operation);
            expect(received == untouched, "no data to move");
            gathers<host>(world, expect, 9);
            same_on_every_rank(world, error, expect);
            return error;
        };
        const std::string expected = "thread_transport: expected the same operation on every rank, given ";
        expect.equal(
            on_host([&] { world.all_gather(host(), send.data(), received.data(), r == 1 ? 8 : 16); }),
            expected +
                "all_gather of 16 bytes on rank 0, all_gather of 8 bytes on rank 1, all_gather of 16 bytes on rank 2");
        expect.equal(
            on_host([&] {
                if (r == 0) {
                    world.all_to_all(host(), send.data(), received.data(), 16);
                } else {
                    world.all_gather(host(), send.data(), received.data(), 16);
                }
            }),
            expected +
                "all_to_all of 16 bytes on rank 0, all_gather of 16 bytes on rank 1, all_gather of 16 bytes on rank 2");
        expect.equal(on_host([&] {
                         if (r == 2) {
                             world.split(std::vector<int>{2});
                         } else {
                             world.all_gather(host(), send.data(), received.data(), 16);
                         }
                     }),
                     expected + "all_gather of 16 bytes on rank 0, all_gather of 16 bytes on rank 1, split on rank 2");
        expect.equal(on_host([&] { world.broadcast(host(), send.data(), received.data(), 16, r == 1 ? 2 : 1); }),
                     expected + "broadcast of 16 bytes from 1 rank on rank 0, broadcast of 16 bytes from 2 ranks on "
                                "rank 1, broadcast of 16 bytes from 1 rank on rank 2");
        expect.equal(
            on_host([&] {
                const host_queue queue;
                world.all_gather(queue, send.data(), received.data(), r == 2 ? 0 : 1);
                queue.wait();
            }),
            expected +
                "all_gather of 1 bytes on rank 0, all_gather of 1 bytes on rank 1, all_gather of 0 bytes on rank 2");
    });
}

TEST_CASE("split lists that contradict are the same error on every rank, which can go on", "[transport][threads]") {
    on_threads(3, "split lists that contradict", [](thread_transport& world, expectations& expect) {
        const auto r = static_cast<std::size_t>(world.rank());
        const auto error_of = [&](const std::array<std::vector<int>, 3>& lists) {
            const std::string error = thrown<precondition_error>([&] { world.split(lists[r]); });
            gathers<host>(world, expect, 9);
            same_on_every_rank(world, error, expect);
            return error;
        };
        const std::string expected =
            "thread_transport: expected the same list of ranks on each rank in it, itself among them, given ";
        expect.equal(error_of({{{0, 1}, {0, 1, 2}, {2}}}),
                     expected + "split {0, 1} on rank 0, split {0, 1, 2} on rank 1, split {2} on rank 2");
        expect.equal(error_of({{{0, 1}, {1, 0}, {2}}}),
                     expected + "split {0, 1} on rank 0, split {1, 0} on rank 1, split {2} on rank 2");
        expect.equal(error_of({{{1}, {1}, {2}}}),
                     expected + "split {1} on rank 0, split {1} on rank 1, split {2} on rank 2");
        expect.equal(error_of({{{0}, {}, {2}}}),
                     expected + "split {0} on rank 0, split {} on rank 1, split {2} on rank 2");
        expect.equal(error_of({{{0, 0}, {1}, {2}}}),
                     expected + "split {0, 0} on rank 0, split {1} on rank 1, split {2} on rank 2");
        expect.equal(error_of({{{0, 3}, {1}, {-1, 2}}}),
                     expected + "split {0, 3} on rank 0, split {1} on rank 1, split {-1, 2} on rank 2");
        expect.equal(error_of({{{0, 2}, {1}, {0, 2}}}), "<nothing thrown>");
    });
}

TEST_CASE("thread_transport's splits may outlive the transport they come from", "[transport][threads]") {
    on_threads(4, "splits that outlive their world", [](thread_transport& world, expectations& expect) {
        thread_transport part = [&] {
            thread_transport everyone = world.split(std::vector<int>{3, 2, 1, 0});
            return everyone.split(everyone.rank() < 2 ? std::vector<int>{0, 1} : std::vector<int>{2, 3});
        }();
        gathers<host>(part, expect, 33);
    });
}

// Deadlines.

namespace {

using zeropp::timeout_error;

/// Runs work(transport) on `ranks` threads of a transport with a timeout, and returns what each of them threw.
template <class Work>
std::vector<std::string> errors_of(int ranks, Work work) {
    const watchdog guard(120s, "ranks with a timeout");
    std::vector<thread_transport> handles = thread_transport::create(ranks, {.timeout = 150ms});
    std::vector<std::string> errors(handles.size());
    {
        std::vector<std::jthread> threads;
        for (std::size_t r = 0; r != handles.size(); ++r) {
            threads.emplace_back([&, r] { errors[r] = thrown<timeout_error>([&] { work(handles[r]); }); });
        }
    }
    return errors;
}

const std::string nothing_thrown = "<nothing thrown>";

}  // namespace

TEST_CASE("thread_transport refuses timeouts below zero", "[transport][threads][deadline]") {
    CHECK(thrown<precondition_error>([] { thread_transport::create(2, {.timeout = -1ms}); }) ==
          "thread_transport: expected a timeout of 0 ms, which is none, or more, given -1 ms");
}

TEST_CASE("thread_transport with a timeout obeys the laws of transports", "[transport][threads][deadline]") {
    const watchdog guard(120s, "laws with a timeout");
    expectations expect;
    zeropp::run_on_threads(4, [&](thread_transport& world) { zeropp_test::transport_laws(world, expect); },
                           {.timeout = 60s});
    CHECK(expect.unmet() == "");
}

TEST_CASE("ranks that wait in vain all throw who has not come, and so do the late", "[transport][threads][deadline]") {
    const auto stays_away = [](auto operation) {
        return errors_of(4, [&](thread_transport& world) {
            zeropp::begin_collective(world, {"collective", 1, "fp32", "int8", {}}, "");
            std::vector<std::byte> memory;
            gather_on(host(), world, memory);
            zeropp::begin_collective(world, {"collective", 1, "fp32", "int8", {}}, "");
            if (world.rank() == 1 || world.rank() == 2) std::this_thread::sleep_for(300ms);
            const std::string first = thrown<timeout_error>([&] { operation(world); });
            // Nothing works from then on, and nothing waits.
            for (int i = 0; i != 3; ++i) {
                const std::string again = thrown<timeout_error>([&] { gather_on(host(), world, memory); });
                if (again != first) throw std::runtime_error(again);
            }
            throw timeout_error(first);
        });
    };
    const std::string expected = "thread_transport: timeout of 150 ms in call 2, ";
    const std::string from = ": not heard from ranks 1, 2";
    const auto same = [](const std::string& text) { return std::vector<std::string>(4, text); };
    std::vector<std::vector<std::byte>> memory(4);
    CHECK(stays_away([&](thread_transport& world) {
              gather_on(host(), world, memory[static_cast<std::size_t>(world.rank())]);
          }) == same(expected + "all_gather of 1 bytes in collective" + from));
    CHECK(stays_away([&](thread_transport& world) {
              gather_on(host_queue(), world, memory[static_cast<std::size_t>(world.rank())]);
          }) == same(expected + "all_gather of 1 bytes in collective" + from));
    CHECK(stays_away([](thread_transport& world) { world.split(std::vector<int>{world.rank()}); }) ==
          same(expected + "split" + from));
}

TEST_CASE("a timeout in a split fails all that was split from the same transport", "[transport][threads][deadline]") {
    const std::vector<std::string> errors = errors_of(4, [](thread_transport& world) {
        const int rank = world.rank();
        thread_transport pair = world.split(rank % 2 == 0 ? std::vector<int>{2, 0} : std::vector<int>{3, 1});
        thread_transport again = pair.split(std::vector<int>{1, 0});
        std::vector<std::byte> memory;
        // Of 3 and 1, rank 3 does not come; 0 and 2 wait for a world that never comes together.
        if (rank == 1) gather_on(host(), again, memory);
        if (rank == 3) std::this_thread::sleep_for(300ms);
        if (rank % 2 == 0) std::this_thread::sleep_for(100ms);
        gather_on(host(), world, memory);
    });
    const std::string expected =
        "thread_transport: timeout of 150 ms in call 1, all_gather of 1 bytes: not heard from rank 3";
    CHECK(errors == std::vector<std::string>(4, expected));
}

TEST_CASE("ranks that wait for a long time, but not too long, go on", "[transport][threads][deadline]") {
    const std::vector<std::string> errors = errors_of(3, [](thread_transport& world) {
        std::vector<std::byte> memory;
        for (int i = 0; i != 4; ++i) {
            if (world.rank() == i % 3) std::this_thread::sleep_for(10ms);
            gather_on(host(), world, memory);
        }
    });
    CHECK(errors == std::vector<std::string>(3, nothing_thrown));
}

TEST_CASE("queues of ranks that wait for each other in vain can be destroyed", "[transport][threads][deadline]") {
    const std::vector<std::string> errors = errors_of(2, [](thread_transport& world) {
        const auto part = world.split(std::vector<int>{0, 1});
        std::vector<std::byte> memory(2);
        // Each in the order that the other does not have.
        std::array<thread_transport, 2> both{world, part};
        if (world.rank() == 1) std::swap(both[0], both[1]);
        const host_queue queue;
        for (thread_transport& t : both) t.all_gather(queue, memory.data() + world.rank(), memory.data(), 1);
        // Nobody asks how it went.
    });
    CHECK(errors == std::vector<std::string>(2, nothing_thrown));
}

// An operation for which all ranks have come happens on all of them, however close the deadline is.
TEST_CASE("at the deadline, an operation happens on all of its ranks or on none", "[transport][threads][deadline]") {
    const watchdog guard(120s, "ranks that come at the deadline");
    for (int round = 0; round != 60; ++round) {
        std::vector<thread_transport> handles = thread_transport::create(2, {.timeout = 2ms});
        std::array<std::string, 2> errors;
        {
            std::vector<std::jthread> threads;
            for (std::size_t r = 0; r != 2; ++r) {
                threads.emplace_back([&, r] {
                    std::vector<std::byte> memory;
                    if (r == 1) std::this_thread::sleep_for(1500us + round * 20us);
                    errors[r] = thrown<timeout_error>([&] { gather_on(host(), handles[r], memory); });
                });
            }
        }
        CHECK(errors[0] == errors[1]);
    }
}
