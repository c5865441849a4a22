#pragma once
/// \file
/// Laws of transports between ranks of host memory: delivery_laws, broadcast_laws and split_laws together. See
/// error_laws for checked and counting_laws for counting transports. Each law is collective over `world` and notes a
/// rank's findings in `expect`, so that it works for threads and for processes.

#include "conformance/broadcast_laws.hpp"
#include "conformance/delivery_laws.hpp"
#include "conformance/split_laws.hpp"
#include "support/expectations.hpp"

#include <zeropp/execution/host.hpp>
#include <zeropp/execution/host_queue.hpp>
#include <zeropp/transport/transport.hpp>

#include <cstddef>
#include <vector>

namespace zeropp_test {

/// Operations in flight complete in order: an operation may send bytes that the previous one receives.
template <class Execution, class Transport>
void keeps_the_order_of_operations(Transport& world, expectations& expect) {
    constexpr std::size_t bytes = 24;
    const Execution exec;
    const std::size_t all = place(world.size(), bytes);
    std::vector<std::byte> start(all);
    std::vector<std::byte> there(all);
    std::vector<std::byte> back(all);
    for (int r = 0; r != world.size(); ++r) message(world.rank(), r).write(start.data() + place(r, bytes), bytes);
    for (int round = 0; round != 25; ++round) {
        world.all_to_all(exec, round == 0 ? start.data() : back.data(), there.data(), bytes);
        world.all_to_all(exec, there.data(), back.data(), bytes);
    }
    std::vector<std::byte> gathered(place(world.size(), all));
    world.all_gather(exec, back.data(), gathered.data(), all);
    exec.wait();
    expect(back == start, "fifty exchanges there and back to change nothing");
    for (int from = 0; from != world.size(); ++from) {
        for (int to = 0; to != world.size(); ++to) {
            expect(message(from, to).is_at(gathered.data() + place(from, all) + place(to, bytes), bytes),
                   "a gather behind them");
        }
    }
}

/// Operations of 0 bytes work with null pointers.
template <class Execution, class Transport>
void carries_nothing(Transport& world, expectations& expect) {
    const Execution exec;
    world.all_gather(exec, nullptr, nullptr, 0);
    world.all_to_all(exec, nullptr, nullptr, 0);
    exec.wait();
    gathers<Execution>(world, expect, 3);
}

template <class Execution, class Transport>
void moves_bytes(Transport& world, expectations& expect) {
    for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{15}, std::size_t{16}, std::size_t{17},
                                    std::size_t{4096}, (std::size_t{1} << 20) + 1}) {
        gathers<Execution>(world, expect, bytes);
        gathers_in_place<Execution>(world, expect, bytes);
        exchanges<Execution>(world, expect, bytes);
    }
    keeps_the_order_of_operations<Execution>(world, expect);
    carries_nothing<Execution>(world, expect);
    if constexpr (must_broadcast<Execution, Transport>()) broadcast_laws<Execution>(world, expect);
}

/// All laws of transports.
template <class Transport>
void transport_laws(Transport& world, expectations& expect) {
    static_assert(zeropp::transport_on<Transport, zeropp::host> && zeropp::transport_on<Transport, zeropp::host_queue>);
    moves_bytes<zeropp::host>(world, expect);
    moves_bytes<zeropp::host_queue>(world, expect);
    splits(world, expect);
    refuses_splits_without_self(world, expect);
    carries_two_splits_at_once(world, expect);
}

}  // namespace zeropp_test
