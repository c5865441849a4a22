/// \file
/// Survivors of a failure agree on one another and go on: shrink, of threads, of transports around others, and of
/// communicators.

#include "conformance/shrink_laws.hpp"

#include "conformance/decorators.hpp"
#include "support/catch.hpp"
#include "support/expectations.hpp"
#include "support/fake_wire.hpp"
#include "support/samples.hpp"
#include "support/watchdog.hpp"

#include <zeropp/execution/host.hpp>
#include <zeropp/execution/host_queue.hpp>
#include <zeropp/topology/flat.hpp>
#include <zeropp/topology/two_level.hpp>
#include <zeropp/transport/adaptor.hpp>
#include <zeropp/transport/any.hpp>
#include <zeropp/transport/checked.hpp>
#include <zeropp/transport/communicator.hpp>
#include <zeropp/transport/thread_agreement.hpp>
#include <zeropp/transport/thread_group.hpp>
#include <zeropp/transport/threads.hpp>

#include <array>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstddef>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

using namespace std::chrono_literals;
using namespace zeropp_test;
using zeropp::excluded_error;
using zeropp::host;
using zeropp::host_queue;
using zeropp::peer_error;
using zeropp::precondition_error;
using zeropp::thread_transport;
using zeropp::timeout_error;

constexpr std::chrono::milliseconds timeout = 150ms;

/// Runs work(transport, expect) on `ranks` threads. A thread that returns has died: no rank is told.
template <class Work>
void on_mortal_threads(int ranks, Work work, std::chrono::milliseconds patience = timeout) {
    const watchdog guard(60s, "survivors");
    expectations expect;
    std::vector<thread_transport> handles = thread_transport::create(ranks, {.timeout = patience});
    {
        std::vector<std::jthread> threads;
        for (thread_transport& handle : handles) {
            threads.emplace_back([&] {
                try {
                    work(handle, expect);
                } catch (const std::exception& e) {
                    expect(false, "no exception on rank " + std::to_string(handle.rank()) + ", given " + e.what());
                }
            });
        }
    }
    CHECK(expect.unmet() == "");
    CHECK(expect.met() > 0);
}

template <class Transport>
void gather(Transport& transport) {
    std::vector<std::byte> memory(static_cast<std::size_t>(transport.size()));
    transport.all_gather(host(), memory.data() + transport.rank(), memory.data(), 1);
}

/// Finds no dead ranks by itself, as a framework's group: throws its own exception until two are excluded.
class told : public zeropp::adaptor<told, thread_transport> {
public:
    explicit told(thread_transport inner) : adaptor(std::move(inner)) {}

    zeropp::shrunk<told> shrink(std::span<const int> excluded = {}) {
        if (excluded.size() < 2) throw std::runtime_error("told: not all ranks have come");
        return adaptor::shrink(excluded);
    }
};

/// `checked` through a control of another type.
struct controlled {
    static auto wrap(thread_transport inner) {
        auto control = chosen::wrap(inner.split(zeropp::detail::world_ranks(inner.size())));
        return zeropp::checked(std::move(inner), std::move(control));
    }
};

}  // namespace

TEST_CASE("transports and their decorators obey the laws of shrinking", "[transport][shrink]") {
    const auto laws = []<class Decorator>(Decorator) {
        for (const int ranks : {3, 5}) {
            std::barrier living(ranks);
            on_mortal_threads(ranks, [&](thread_transport& base, expectations& expect) {
                auto world = Decorator::wrap(base);
                shrink_laws(world, living, expect);
            });
        }
    };
    laws(plain());
    laws(chosen());
    laws(both<counted, checking>());
    laws(controlled());
}

TEST_CASE("a transport over a wire that can shrink obeys the laws of shrinking", "[transport][shrink]") {
    const watchdog guard(60s, "survivors on a wire");
    fake_network network;
    std::barrier living(4);
    expectations expect;
    {
        std::vector<std::jthread> threads;
        for (int rank = 0; rank != 4; ++rank) {
            threads.emplace_back([&, rank] {
                fake_transport world(network, 4, rank, {.timeout = 10s});
                shrink_laws(world, living, expect);
                network.kill(rank);
            });
        }
    }
    CHECK(expect.unmet() == "");
}

TEST_CASE("ranks die in the middle of a step, and the others go on with whole nodes", "[transport][shrink]") {
    on_mortal_threads(6, [](thread_transport& world, expectations& expect) {
        zeropp::communicator comm(zeropp::two_level(3, 2), world);
        gather(comm.world());
        if (comm.group_id() == 1) return;
        const auto start = std::chrono::steady_clock::now();
        const std::string error = thrown<timeout_error>([&] {
            gather(comm.peers(0));
            gather(comm.peers(1));
        });
        expect(error.find("not heard from rank") != std::string::npos, "a timeout, given " + error);
        auto [next, survivors] = comm.shrink();
        const auto took = std::chrono::steady_clock::now() - start;
        expect(took < timeout + 1s, "an agreement soon after the timeout");
        expect.equal(text_of(survivors), "0 1 4 5");
        expect(next.topology() == zeropp::two_level(2, 2), "two nodes of two ranks");
        const int rank = world.rank();
        connects(next.world(), rank, {0, 1, 4, 5}, expect);
        connects(next.peers(0), rank, rank < 2 ? std::vector<int>{0, 1} : std::vector<int>{4, 5}, expect);
        connects(next.peers(1), rank, rank % 2 == 0 ? std::vector<int>{0, 4} : std::vector<int>{1, 5}, expect);
        // Errors now have the new ranks' numbers.
        if (next.rank() == 2) return;
        const std::string again = thrown<timeout_error>([&] { gather(next.world()); });
        expect(again.ends_with("not heard from rank 2"), "the new rank's number, given " + again);
    });
}

TEST_CASE("a rank that was only slow is told that it is out, and disturbs nobody", "[transport][shrink]") {
    std::atomic<bool> out = false;
    on_mortal_threads(4, [&](thread_transport& world, expectations& expect) {
        gather(world);
        if (world.rank() == 1) std::this_thread::sleep_for(4 * timeout);
        const std::string error = thrown<timeout_error>([&] { gather(world); });
        expect.equal(error,
                     "thread_transport: timeout of 150 ms in call 2, all_gather of 1 bytes: not heard from rank 1");
        if (world.rank() == 1) {
            for (int i = 0; i != 2; ++i) {
                expect.equal(thrown<excluded_error>([&] { world.shrink(); }),
                             "thread_transport: rank 1 is left out; the ranks that go on are 0, 2, 3");
                expect.equal(thrown<timeout_error>([&] { gather(world); }), error);
            }
            world.abort("by a rank that is out");
            out = true;
            return;
        }
        auto [next, survivors] = world.shrink();
        expect.equal(text_of(survivors), "0 2 3");
        // Its error reaches no survivor.
        while (!out) std::this_thread::sleep_for(1ms);
        connects(next, world.rank(), survivors, expect);
    });
}

TEST_CASE("survivors wait for a rank that computes, and for one that waits elsewhere", "[transport][shrink]") {
    on_mortal_threads(
        5,
        [](thread_transport& world, expectations& expect) {
            const int rank = world.rank();
            thread_transport part = world.split(rank < 2 ? std::vector<int>{0, 1} : std::vector<int>{2, 3, 4});
            gather(world);
            if (rank == 1) return;
            // Rank 0's wait ends at 600 ms. Rank 2 was heard at 400 ms and comes at 750 ms.
            if (rank >= 2) {
                std::this_thread::sleep_for(400ms);
                gather(part);
            }
            if (rank == 2) std::this_thread::sleep_for(350ms);
            const std::string error = thrown<timeout_error>([&] { gather(rank == 0 ? part : world); });
            expect(error.ends_with("not heard from rank 1"), "a timeout, given " + error);
            expect.equal(text_of(world.shrink().survivors), "0 2 3 4");
        },
        600ms);
}

TEST_CASE("a rank dies between the failure and shrink, or while survivors connect", "[transport][shrink]") {
    on_mortal_threads(6, [](thread_transport& world, expectations& expect) {
        const int rank = world.rank();
        zeropp::communicator comm(zeropp::two_level(6, 1), world);
        gather(comm.world());
        if (rank == 4) return;
        expect(!thrown<timeout_error>([&] { gather(comm.world()); }).starts_with('<'), "a timeout");
        if (rank == 0) return;
        // Rank 5 agrees, but dies before the communicator's splits.
        if (rank == 5) {
            expect.equal(text_of(world.shrink().survivors), "1 2 3 5");
            return;
        }
        auto [next, survivors] = comm.shrink();
        // A topology of nodes with one rank needs no split, so the first operation fails.
        expect.equal(text_of(survivors), "1 2 3 5");
        expect(!thrown<timeout_error>([&] { gather(next.world()); }).starts_with('<'), "a timeout");
        auto [last, of_next] = next.shrink();
        expect.equal(text_of(of_next), "0 1 2");
        connects(last.world(), rank, {1, 2, 3}, expect);
    });
    on_mortal_threads(8, [](thread_transport& world, expectations& expect) {
        const int rank = world.rank();
        zeropp::communicator comm(zeropp::two_level(4, 2), world);
        if (rank < 2) return;
        expect(!thrown<timeout_error>([&] { gather(comm.world()); }).starts_with('<'), "a timeout");
        if (rank >= 6) {
            world.shrink();
            return;
        }
        auto [next, survivors] = comm.shrink();
        expect.equal(text_of(survivors), "2 3 4 5");
        connects(next.world(), rank, {2, 3, 4, 5}, expect);
        connects(next.peers(1), rank, rank % 2 == 0 ? std::vector<int>{2, 4} : std::vector<int>{3, 5}, expect);
    });
}

TEST_CASE("a rank that dies between the two agreements of checked is left out too", "[transport][shrink]") {
    for (const int ranks : {5, 3}) {
        std::vector<thread_transport> controls = thread_transport::create(ranks, {.timeout = timeout});
        on_mortal_threads(ranks, [&](thread_transport& base, expectations& expect) {
            thread_transport& control = controls[static_cast<std::size_t>(base.rank())];
            if (base.rank() == 1) return;
            if (base.rank() == 3) {
                control.shrink();
                return;
            }
            zeropp::checked world(told(base), chosen::wrap(std::move(control)));
            if (ranks == 3) {  // no other rank has died
                expect.equal(thrown<std::runtime_error>([&] { world.shrink(); }), "told: not all ranks have come");
                return;
            }
            auto [next, survivors] = world.shrink();
            expect.equal(text_of(survivors), "0 2 4");
            connects(next, base.rank(), survivors, expect);
        });
    }
}

TEST_CASE("survivors of run_on_threads do not wait for a thread that has ended", "[transport][shrink]") {
    const watchdog guard(60s, "survivors without a timeout");
    expectations expect;
    const std::string error = thrown<std::runtime_error>([&] {
        zeropp::run_on_threads(4, [&](thread_transport& world) {
            if (world.rank() == 3) return;
            if (world.rank() == 0) throw std::runtime_error("out of memory");
            expect.equal(thrown<peer_error>([&] { gather(world); }), "rank 0 failed: out of memory");
            auto [next, survivors] = world.shrink();
            expect.equal(text_of(survivors), "1 2");
            connects(next, world.rank(), survivors, expect);
            // A failure of a survivor releases the other one.
            if (world.rank() == 2) throw std::runtime_error("out of disk");
            expect.equal(thrown<peer_error>([&] { gather(next); }), "rank 2 failed: out of disk");
            expect.equal(text_of(next.shrink().survivors), "0");
        });
    });
    CHECK(error == "out of memory");
    CHECK(expect.unmet() == "");
}

TEST_CASE("work in flight ends before shrink, and its queue serves the survivors", "[transport][shrink]") {
    on_mortal_threads(4, [](thread_transport& world, expectations& expect) {
        if (world.rank() == 3) return;
        const host_queue queue;
        std::array<std::byte, 4> memory{};
        for (int i = 0; i != 3; ++i) world.all_gather(queue, memory.data() + world.rank(), memory.data(), 1);
        expect(!thrown<timeout_error>([&] { queue.wait(); }).starts_with('<'), "a timeout");
        auto [next, survivors] = world.shrink();
        exchanges<host_queue>(next, expect, 100);
        next.all_gather(queue, memory.data() + next.rank(), memory.data(), 1);
        queue.wait();
        connects(next, world.rank(), survivors, expect);
    });
}

TEST_CASE("survivors shrink one transport after another, whoever comes first", "[transport][shrink]") {
    on_mortal_threads(4, [](thread_transport& world, expectations& expect) {
        thread_transport part = world.split(std::vector<int>{0, 1, 2, 3});
        if (world.rank() == 3) return;
        const std::vector<int> left{0, 1, 2};
        expect(world.shrink().survivors == left, "ranks 0 to 2 in the world");
        if (world.rank() == 1) std::this_thread::sleep_for(timeout / 3);
        expect(part.shrink().survivors == left, "ranks 0 to 2 in the split");
    });
}

TEST_CASE("shrink ends the operations of ranks that have noticed no failure", "[transport][shrink]") {
    on_mortal_threads(
        3,
        [](thread_transport& world, expectations& expect) {
            thread_transport part = world.split(std::vector<int>{2, 1, 0});
            if (world.rank() != 0) {
                expect.equal(thrown<peer_error>([&] { gather(part); }), "thread_transport: rank 0 has called shrink");
            }
            auto [next, survivors] = world.shrink();
            expect.equal(text_of(survivors), "0 1 2");
            connects(next, world.rank(), survivors, expect);
            expect.equal(thrown<precondition_error>([&] { world.shrink(); }),
                         "thread_transport: expected one shrink of each transport, given another one");
        },
        10s);
}

TEST_CASE("a rank that the others exclude is out, though it comes", "[transport][shrink]") {
    on_mortal_threads(
        3,
        [](thread_transport& world, expectations& expect) {
            if (world.rank() == 1) {
                expect.equal(thrown<excluded_error>([&] { world.shrink(); }),
                             "thread_transport: rank 1 is left out; the ranks that go on are 0, 2");
            } else {
                auto [next, survivors] = world.shrink(std::vector<int>{1});
                connects(next, world.rank(), {0, 2}, expect);
            }
        },
        10s);
}

TEST_CASE("any_transport says if its transport cannot shrink", "[transport][shrink]") {
    thread_transport alone = thread_transport::create(1)[0];
    struct fixed : zeropp::adaptor<fixed, thread_transport> {
        explicit fixed(thread_transport t) : adaptor(std::move(t)) {}
        zeropp::shrunk<fixed> shrink(std::span<const int>) = delete;
    };
    zeropp::any_transport<host> held{fixed(alone)};
    CHECK(thrown<precondition_error>([&] { held.shrink(); }) ==
          "any_transport: expected a transport that can shrink, given one that cannot");
}

// Whenever ranks die or are late, the ranks that get a transport are the ones in its list, and the lists are equal.
TEST_CASE("survivors agree, whenever ranks die", "[transport][shrink]") {
    for (unsigned round = 0; round != 25; ++round) {
        constexpr int ranks = 5;
        std::array<std::string, ranks> lists;
        on_mortal_threads(
            ranks,
            [&](thread_transport& world, expectations& expect) {
                expect(true);
                const auto self = static_cast<std::size_t>(world.rank());
                zeropp_test::random_source random(round * ranks + self + 1);
                const auto moment = [&] { return std::chrono::microseconds(random.below(20000)); };
                const bool dies = random.below(3) == 0;
                const auto end = std::chrono::steady_clock::now() + moment();
                try {
                    while (!dies || std::chrono::steady_clock::now() < end) {
                        if (random.below(20) == 0) std::this_thread::sleep_for(moment() / 4);
                        gather(world);
                        if (!dies && std::chrono::steady_clock::now() > end + 20ms) throw peer_error("a local failure");
                    }
                    return;
                } catch (const zeropp::error&) {
                }
                if (random.below(8) == 0) return;  // a second failure
                try {
                    auto [next, survivors] = world.shrink();
                    lists[self] = text_of(survivors);
                    expect.equal(survivors[static_cast<std::size_t>(next.rank())], world.rank());
                } catch (const excluded_error&) {
                }
            },
            12ms);
        std::string agreed;
        for (std::size_t r = 0; r != ranks; ++r) {
            if (!lists[r].empty()) agreed += (agreed.empty() ? "" : " ") + std::to_string(r);
        }
        for (std::size_t r = 0; r != ranks; ++r) {
            CHECK((lists[r].empty() || lists[r] == agreed));
        }
    }
}
