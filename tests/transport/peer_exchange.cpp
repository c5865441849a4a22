/// \file
/// peer_exchange on a wire that does what a test says: what ranks get when messages are lost, late, repeated or
/// refused.

#include <zeropp/transport/peer_exchange.hpp>

#include "conformance/delivery_laws.hpp"
#include "conformance/transport_laws.hpp"
#include "support/catch.hpp"
#include "support/expectations.hpp"
#include "support/fake_wire.hpp"
#include "support/watchdog.hpp"

#include <zeropp/transport/checked.hpp>
#include <zeropp/transport/checksummed.hpp>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <exception>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

using namespace std::chrono_literals;
using zeropp::host;
using zeropp_test::fake_network;
using zeropp_test::fake_transport;
using zeropp_test::thrown;
using zeropp_test::wire_fault;
using zeropp_test::wire_message;

constexpr std::chrono::milliseconds timeout = 500ms;
constexpr std::size_t piece = 16;
constexpr int acknowledgement_tag = 32767;

/// What each rank got of work(transport): the error's text, or "".
template <class Work>
std::vector<std::string> on_ranks(int ranks, fake_network& network, std::chrono::milliseconds patience, Work work,
                                  std::size_t bytes_of_piece = piece) {
    const zeropp_test::watchdog guard(20s, "peer_exchange");
    std::vector<std::string> errors(static_cast<std::size_t>(ranks));
    std::vector<std::thread> threads;
    std::barrier all_started(ranks);
    for (int r = 0; r != ranks; ++r) {
        threads.emplace_back([&, r] {
            fake_transport transport(network, ranks, r, {.timeout = patience}, bytes_of_piece);
            all_started.arrive_and_wait();
            try {
                work(transport);
            } catch (const std::exception& e) {
                errors[static_cast<std::size_t>(r)] = e.what();
            }
        });
    }
    for (std::thread& t : threads) t.join();
    return errors;
}

/// Gathers messages of so many bytes, and throws where what arrives is not what was sent. The memory stays.
struct gatherer {
    std::size_t bytes;

    void operator()(fake_transport& transport) const {
        static std::mutex mutex;
        static std::vector<std::vector<std::byte>> kept;
        std::byte* memory = nullptr;
        const auto ranks = static_cast<std::size_t>(transport.size());
        {
            const std::lock_guard lock(mutex);
            memory = kept.emplace_back((ranks + 1) * bytes).data();
        }
        const zeropp_test::message own(transport.rank(), zeropp_test::to_all);
        own.write(memory, bytes);
        transport.all_gather(host(), memory, memory + bytes, bytes);
        for (int r = 0; r != transport.size(); ++r) {
            const zeropp_test::message theirs(r, zeropp_test::to_all);
            if (!theirs.is_at(memory + bytes + static_cast<std::size_t>(r) * bytes, bytes)) {
                throw std::runtime_error("wrong bytes from rank " + std::to_string(r));
            }
        }
    }
};

/// Twice: who is done with the first, and learns in the second of a peer that is not, has time left then.
struct twice {
    std::size_t bytes;

    void operator()(fake_transport& transport) const {
        gatherer{bytes}(transport);
        std::this_thread::sleep_for(timeout / 2);
        gatherer{bytes}(transport);
    }
};

std::string gather_of(std::size_t bytes) { return "all_gather of " + std::to_string(bytes) + " bytes"; }

/// Every rank gets the same error, which contains `part`.
void all_get(const std::vector<std::string>& errors, const std::string& part) {
    for (std::size_t r = 0; r != errors.size(); ++r) {
        INFO("rank " << r << ": " << errors[r]);
        CHECK(errors[r].find(part) != std::string::npos);
    }
}

void all_are_well(const std::vector<std::string>& errors) {
    for (const std::string& e : errors) CHECK(e == "");
}

}  // namespace

TEST_CASE("peer_exchange obeys the laws of transports on any wire", "[transport][peer_exchange]") {
    for (const std::size_t eager : {std::size_t{0}, std::size_t{1} << 20}) {
        for (const std::chrono::milliseconds patience : {0ms, 20000ms}) {
            for (const int ranks : {1, 2, 4}) {
                fake_network network(eager);
                zeropp_test::expectations expect;
                INFO(ranks << " ranks, eager up to " << eager << " bytes, " << patience.count() << " ms");
                all_are_well(on_ranks(
                    ranks, network, patience,
                    [&](fake_transport& world) { zeropp_test::transport_laws(world, expect); }, 65536));
                CHECK(expect.unmet() == "");
                CHECK(expect.met() > 0);
            }
        }
    }
}

TEST_CASE("peer_exchange: messages of any number of pieces arrive in any order of events",
          "[transport][peer_exchange]") {
    for (const std::size_t bytes :
         {std::size_t{0}, std::size_t{1}, piece, piece + 1, 8 * piece, 9 * piece, 40 * piece + 3}) {
        // Each message is delayed by what its place in the ring says.
        fake_network network(0, [](const wire_message& m) {
            return wire_fault{.delay = std::chrono::milliseconds((m.source * 3 + m.destination) % 4)};
        });
        all_are_well(on_ranks(4, network, 10000ms, gatherer{bytes}));
    }
}

TEST_CASE("peer_exchange: a piece that is lost is missed by all ranks in time", "[transport][peer_exchange]") {
    for (const std::size_t lost : {std::size_t{0}, std::size_t{1}, std::size_t{9}}) {
        std::atomic<std::size_t> sent = 0;
        fake_network network(1 << 20, [&](const wire_message& m) {
            const bool piece_of_one = m.source == 1 && m.destination == 0 && m.tag != acknowledgement_tag;
            return wire_fault{.lost = piece_of_one && sent++ == lost};
        });
        const auto start = std::chrono::steady_clock::now();
        const auto errors = on_ranks(3, network, timeout, twice{10 * piece});
        CHECK(std::chrono::steady_clock::now() - start < timeout + 1s);
        INFO("piece " << lost);
        all_get(errors, "timeout of 500 ms in call 1, " + gather_of(10 * piece) + ": not heard from rank");
        CHECK(errors[0].find("not heard from rank 1") != std::string::npos);
    }
}

TEST_CASE("peer_exchange: an acknowledgement that is lost fails all ranks, though the bytes are there",
          "[transport][peer_exchange]") {
    fake_network network(1 << 20, [](const wire_message& m) {
        return wire_fault{.lost = m.tag == acknowledgement_tag && m.source == 2 && m.destination == 1 && m.bytes < 512};
    });
    const auto errors = on_ranks(3, network, timeout, twice{piece});
    all_get(errors, "timeout of 500 ms in call 1, " + gather_of(piece) + ": not heard from rank 2");
}

TEST_CASE("peer_exchange: what is late but in time is no error; what is later is one on every rank",
          "[transport][peer_exchange]") {
    for (const bool acknowledgements : {false, true}) {
        for (const std::chrono::milliseconds delay : {timeout / 3, timeout * 3}) {
            fake_network network(1 << 20, [&](const wire_message& m) {
                const bool chosen =
                    m.source == 0 && m.destination == 1 && (m.tag == acknowledgement_tag) == acknowledgements;
                return wire_fault{.delay = chosen && m.bytes < 512 ? delay : 0ms};
            });
            const auto errors = on_ranks(2, network, timeout, twice{piece});
            INFO((acknowledgements ? "acknowledgements " : "pieces ") << delay.count() << " ms late");
            if (delay < timeout) {
                all_are_well(errors);
            } else {
                all_get(errors, "timeout of 500 ms in call 1, " + gather_of(piece) + ": not heard from rank ");
            }
        }
    }
}

TEST_CASE("peer_exchange: an acknowledgement that comes again is not the next operation's",
          "[transport][peer_exchange]") {
    fake_network network(1 << 20, [](const wire_message& m) {
        return wire_fault{.repeated = m.tag == acknowledgement_tag && m.source == 1 && m.bytes < 512};
    });
    const auto errors = on_ranks(2, network, timeout, [](fake_transport& world) {
        for (int step = 0; step != 3; ++step) gatherer{piece}(world);
    });
    CHECK(errors[0] == "fake_transport: expected the same operation on every rank, given call 2, " + gather_of(piece) +
                           " on rank 0, call 1, " + gather_of(piece) + " on rank 1");
    CHECK(errors[1] == "fake_transport: rank 0 failed: " + errors[0]);
}

TEST_CASE("peer_exchange: a piece that comes again is not the next operation's", "[transport][peer_exchange]") {
    for (const std::chrono::milliseconds patience : {0ms, timeout}) {
        fake_network network(1 << 20, [](const wire_message& m) {
            return wire_fault{.repeated = m.source == 1 && m.tag != acknowledgement_tag};
        });
        const auto errors = on_ranks(2, network, patience, [](fake_transport& world) {
            std::vector<std::byte> memory(3 * piece);
            for (int step = 0; step != 3; ++step) {
                std::fill_n(memory.begin(), piece, static_cast<std::byte>(step));
                world.all_gather(host(), memory.data(), memory.data() + piece, piece);
                if (memory.back() != static_cast<std::byte>(step)) throw std::runtime_error("an older piece");
            }
        });
        all_are_well(errors);
    }
}

TEST_CASE("peer_exchange: a wire that refuses fails all ranks with its cause", "[transport][peer_exchange]") {
    for (const bool acknowledgements : {false, true}) {
        fake_network network(1 << 20, [&](const wire_message& m) {
            const bool chosen =
                m.source == 2 && m.destination == 0 && (m.tag == acknowledgement_tag) == acknowledgements;
            return wire_fault{.refused = chosen && m.bytes < 512};
        });
        const auto errors = on_ranks(3, network, timeout, twice{2 * piece});
        CHECK(errors[2] == "fake_wire: no room");
        CHECK(errors[0] == "fake_transport: rank 2 failed: fake_wire: no room");
        CHECK(errors[1] == "fake_transport: rank 2 failed: fake_wire: no room");
    }
}

TEST_CASE("peer_exchange: a wire that refuses the news of a failure to one rank tells it to the others",
          "[transport][peer_exchange]") {
    fake_network network(
        1 << 20, [](const wire_message& m) { return wire_fault{.refused = m.source == 2 && m.destination == 0}; });
    const auto errors = on_ranks(3, network, timeout, twice{piece});
    const std::string cause = "fake_transport: rank 2 failed: fake_wire: no room";
    CHECK(errors[2] == "fake_wire: no room");
    CHECK(errors[1] == cause);
    // Rank 1 tells rank 0, unless it has acknowledged the pieces before.
    if (errors[0] != cause) {
        CHECK(errors[0] ==
              "fake_transport: timeout of 500 ms in call 1, " + gather_of(piece) + ": not heard from rank 2");
    }
}

TEST_CASE("peer_exchange: a rank that does not hear of an abort fails by its own deadline",
          "[transport][peer_exchange]") {
    fake_network network(0, [](const wire_message& m) {
        const bool abort = m.tag == acknowledgement_tag && m.bytes > 512;
        return wire_fault{.lost = abort, .refused = m.source == 2 && m.tag != acknowledgement_tag};
    });
    const auto errors = on_ranks(3, network, timeout, gatherer{2 * piece});
    CHECK(errors[2] == "fake_wire: no room");
    CHECK(errors[0].find("timeout of 500 ms in call 1, " + gather_of(2 * piece) + ": not heard from rank") !=
          std::string::npos);
    CHECK(errors[1].find("timeout of 500 ms in call 1, " + gather_of(2 * piece) + ": not heard from rank") !=
          std::string::npos);
}

// The wire may read what the caller writes after its error. So a rank acknowledges only messages that have left.
TEST_CASE("peer_exchange: nobody succeeds with bytes that a rank wrote after it gave up",
          "[transport][peer_exchange]") {
    fake_network network(0, [](const wire_message& m) {
        const bool late = m.source == 0 && m.destination == 1 && m.tag != acknowledgement_tag;
        return wire_fault{.lost = m.source == 2 && m.destination == 0, .delay = late ? timeout * 6 / 5 : 0ms};
    });
    std::vector<std::vector<std::byte>> memory(3, std::vector<std::byte>(4 * piece));
    const auto errors = on_ranks(3, network, timeout, [&](fake_transport& world) {
        std::byte* const own = memory[static_cast<std::size_t>(world.rank())].data();
        if (world.rank() == 1) std::this_thread::sleep_for(timeout / 2);
        try {
            world.all_gather(host(), own, own + piece, piece);
        } catch (const zeropp::error&) {
            std::fill_n(own, piece, std::byte{9});
            throw;
        }
        if (own[piece] == std::byte{9}) throw std::runtime_error("newer bytes");
    });
    CHECK(errors[0].ends_with("not heard from ranks 1, 2"));
    CHECK(errors[1].find("timeout of 500 ms in call 1, " + gather_of(piece)) != std::string::npos);
}

TEST_CASE("peer_exchange: a message that is too long or too short, without a timeout", "[transport][peer_exchange]") {
    fake_network network(1 << 20);
    const auto errors = on_ranks(2, network, 0ms, [](fake_transport& world) {
        gatherer{world.rank() == 0 ? std::size_t{9} : std::size_t{12}}(world);
    });
    CHECK(errors[0] == "fake_wire: message too long");
    CHECK(errors[1] == "fake_transport: expected 12 bytes from the other ranks, given 9");
}

TEST_CASE("peer_exchange: after a failure the family refuses, with the first cause", "[transport][peer_exchange]") {
    std::atomic<bool> broken = false;
    std::barrier all_here(4);
    fake_network network(1 << 20, [&](const wire_message&) { return wire_fault{.lost = broken.load()}; });
    const auto errors = on_ranks(4, network, timeout, [&](fake_transport& world) {
        const int pair[] = {world.rank() / 2 * 2, world.rank() / 2 * 2 + 1};
        fake_transport group = world.split(pair);
        gatherer{piece}(group);
        gatherer{piece}(world);
        all_here.arrive_and_wait();
        broken = true;
        all_here.arrive_and_wait();
        const std::string first = thrown<zeropp::error>([&] { gatherer{piece}(group); });
        if (first.find("not heard from rank " + std::to_string(pair[1 - world.rank() % 2])) == std::string::npos) {
            throw std::runtime_error("of the group: " + first);
        }
        const std::string second = thrown<zeropp::error>([&] { gatherer{piece}(world); });
        if (second != first) throw std::runtime_error("of the world: " + second);
    });
    all_are_well(errors);
}

TEST_CASE("peer_exchange: after a failure, splits are refused without a timeout too", "[transport][peer_exchange]") {
    fake_network network(1 << 20, [](const wire_message&) { return wire_fault{.refused = true}; });
    const auto errors = on_ranks(2, network, 0ms, [](fake_transport& world) {
        const std::string first = thrown<std::runtime_error>([&] { gatherer{piece}(world); });
        const std::string second = thrown<std::runtime_error>([&] { world.split(std::vector<int>{0, 1}); });
        if (first != "fake_wire: no room" || second != first) throw std::runtime_error(first + ", then " + second);
    });
    all_are_well(errors);
}

TEST_CASE("checked over a wire: one rank's split list without itself is no hang for the others",
          "[transport][peer_exchange][checked]") {
    fake_network network(1 << 20);
    const auto errors = on_ranks(3, network, timeout, [](fake_transport& base) {
        zeropp::checked world(std::move(base));
        auto pair = world.split(std::vector<int>{0, 1});
        std::byte both[2];
        pair.all_gather(host(), both + pair.rank(), both, 1);
    });
    CHECK(errors[0] == "");
    CHECK(errors[1] == "");
    CHECK(errors[2] == "fake_transport: expected a split list with rank 2, given one without");
}

TEST_CASE("an acknowledgement of any bytes is a failure in words", "[transport][peer_exchange]") {
    zeropp::detail::acknowledgement given;
    std::memset(static_cast<void*>(&given), 0x77, sizeof given);
    CHECK(given.operation.text().find("operation 119 of ") != std::string::npos);
    CHECK(zeropp_test::thrown<zeropp::peer_error>([&] { given.require_done(); }) ==
          std::string(sizeof given.cause, 'w'));
    given.outcome = zeropp::detail::acknowledgement::verdict::timed_out;
    CHECK_THROWS_AS(given.require_done(), zeropp::timeout_error);
}
