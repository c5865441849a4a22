#pragma once
/// \file
/// Laws of transports that can broadcast. Each law is collective over `world`.

#include "conformance/delivery_laws.hpp"
#include "support/expectations.hpp"

#include <zeropp/transport/transport.hpp>

#include <chrono>
#include <cstddef>
#include <string>
#include <thread>
#include <vector>

namespace zeropp_test {

/// True if a transport has no broadcast and should have none. Its test specialises this. Otherwise a missing broadcast,
/// or one that no longer compiles, would drop the laws silently.
template <class Transport>
inline constexpr bool does_without_broadcast = false;

/// True if the laws require `Transport` to broadcast.
template <class Execution, class Transport>
constexpr bool must_broadcast() {
    static_assert(zeropp::broadcasting_transport_on<Transport, Execution> != does_without_broadcast<Transport>,
                  "a transport has a broadcast, or its test says that it does without");
    return !does_without_broadcast<Transport>;
}

/// broadcast delivers the bytes of the first `roots` ranks to every rank, `in_place` or not. It writes nothing beside
/// them and reads nothing of other ranks.
template <class Execution, class Transport>
void broadcasts(Transport& world, expectations& expect, std::size_t bytes, int roots, bool in_place) {
    const Execution exec;
    const bool is_root = world.rank() < roots;
    std::vector<std::byte> apart(is_root ? bytes : 0);
    guarded<std::byte> received(place(roots, bytes));
    std::byte* const own = in_place && is_root ? received.data() + place(world.rank(), bytes) : apart.data();
    if (is_root) message(world.rank(), to_all).write(own, bytes);
    world.broadcast(exec, is_root ? own : nullptr, received.data(), bytes, roots);
    exec.wait();
    for (int r = 0; r != roots; ++r) {
        expect(message(r, to_all).is_at(received.data() + place(r, bytes), bytes),
               "rank " + std::to_string(r) + "'s bytes of " + std::to_string(roots));
    }
    expect(received.intact(), "no byte beside the buffer of " + std::to_string(roots) + " roots");
    expect(!is_root || message(world.rank(), to_all).is_at(own, bytes), "what is sent to stay as it is");
}

/// Roots may go ahead of ranks that come late, and their later broadcasts must not be mixed up. Roots stay equal for
/// some broadcasts in a row, so that they go as far ahead as the transport allows.
template <class Execution, class Transport>
void keeps_the_order_of_broadcasts(Transport& world, expectations& expect) {
    constexpr std::size_t most_bytes = 8 * 37;
    constexpr std::size_t in_a_row = 9;
    constexpr std::size_t rounds = 4 * in_a_row;
    const Execution exec;
    const auto roots_in = [&](std::size_t round) { return 1 + static_cast<int>(round / in_a_row) % world.size(); };
    // Sizes have period 5, so that they do not repeat in transports that alternate between 2 or 4 buffers.
    const auto bytes_in = [](std::size_t round) { return 8 * (1 + round % 5 * 9); };
    std::vector<std::byte> sent(rounds * most_bytes);
    std::vector<std::byte> received(rounds * place(world.size(), most_bytes));
    const auto received_in = [&](std::size_t round) {
        return received.data() + round * place(world.size(), most_bytes);
    };
    for (std::size_t i = 0; i != rounds; ++i) {
        std::byte* const own = sent.data() + i * most_bytes;
        message(world.rank(), static_cast<int>(i)).write(own, bytes_in(i));
        if (i % in_a_row == 0 && world.rank() >= roots_in(i)) {
            std::this_thread::sleep_for(std::chrono::milliseconds(3));
        }
        world.broadcast(exec, own, received_in(i), bytes_in(i), roots_in(i));
    }
    exec.wait();
    for (std::size_t i = 0; i != rounds; ++i) {
        for (int r = 0; r != roots_in(i); ++r) {
            expect(message(r, static_cast<int>(i)).is_at(received_in(i) + place(r, bytes_in(i)), bytes_in(i)),
                   "broadcast " + std::to_string(i) + " of rank " + std::to_string(r));
        }
    }
}

/// All laws of broadcasting_transport_on, with every number of roots.
template <class Execution, class Transport>
void broadcast_laws(Transport& world, expectations& expect) {
    expect(zeropp::can_broadcast<Execution>(world), "a transport that can broadcast");
    for (const std::size_t bytes :
         {std::size_t{0}, std::size_t{1}, std::size_t{17}, std::size_t{4096}, (std::size_t{1} << 20) + 1}) {
        for (int roots = 1; roots <= world.size(); ++roots) {
            broadcasts<Execution>(world, expect, bytes, roots, false);
            broadcasts<Execution>(world, expect, bytes, roots, true);
        }
    }
    keeps_the_order_of_broadcasts<Execution>(world, expect);
    world.broadcast(Execution(), nullptr, nullptr, 0, 1);
    gathers<Execution>(world, expect, 3);
}

}  // namespace zeropp_test
