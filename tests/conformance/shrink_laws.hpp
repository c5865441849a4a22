#pragma once
/// \file
/// Laws of transports from which survivors make a smaller one (shrinkable_transport), an optional ability.

#include "conformance/split_laws.hpp"
#include "support/expectations.hpp"

#include <zeropp/core/error.hpp>
#include <zeropp/execution/host.hpp>
#include <zeropp/transport/transport.hpp>

#include <barrier>
#include <cstddef>
#include <numeric>
#include <utility>
#include <vector>

namespace zeropp_test {

/// Shrinks `transport` to all ranks but `dead`, and returns the transport of the survivors. `world_ranks` are the world
/// ranks of `transport`, and of the result afterwards. `dead` must not call this.
template <class Transport>
Transport shrinks_without(Transport& transport, int dead, std::vector<int>& world_ranks, expectations& expect) {
    const int rank = world_ranks[static_cast<std::size_t>(transport.rank())];
    std::vector<int> expected(world_ranks.size());
    std::iota(expected.begin(), expected.end(), 0);
    std::erase(expected, dead);
    for (const int wrong : {-1, transport.size(), transport.rank()}) {
        const std::string error =
            thrown<zeropp::precondition_error>([&] { transport.shrink(std::vector<int>{wrong}); });
        expect(error.find("expected excluded ranks below ") != std::string::npos,
               "a precondition_error, given " + error);
    }
    auto [next, survivors] = transport.shrink(std::vector<int>{dead});
    expect.equal(text_of(survivors), text_of(expected));
    world_ranks.erase(world_ranks.begin() + dead);
    connects(next, rank, world_ranks, expect);
    return std::move(next);
}

/// shrink leaves out a rank that is gone, ends the transport and its splits, and works again on its result. Afterwards
/// `world` is of no use. Requires 3 ranks or more, each a thread. The ranks wait for each other at `living`, of
/// world.size() threads, before they shrink: a shrink interrupts operations that other ranks have not finished.
template <class Transport>
void shrink_laws(Transport& world, std::barrier<>& living, expectations& expect) {
    static_assert(zeropp::shrinkable_transport<Transport>);
    const int rank = world.rank();
    std::vector<int> ranks(static_cast<std::size_t>(world.size()));
    std::iota(ranks.begin(), ranks.end(), 0);
    Transport part = world.split(std::vector<int>(ranks.rbegin(), ranks.rend()));
    const int dead = world.size() / 2;
    if (rank == dead) return living.arrive_and_drop();
    living.arrive_and_wait();
    Transport next = shrinks_without(world, dead, ranks, expect);
    const std::byte sent{};
    std::vector<std::byte> received(static_cast<std::size_t>(world.size()));
    for (Transport* old : {&world, &part}) {
        const auto gather = [&] { old->all_gather(zeropp::host(), &sent, received.data(), 1); };
        expect(thrown<zeropp::error>(gather).find('<') != 0, "an error of a transport that was shrunk");
    }
    const std::vector<int> backwards(ranks.rbegin(), ranks.rend());
    std::vector<int> places(ranks.size());
    std::iota(places.rbegin(), places.rend(), 0);
    Transport reversed = next.split(places);
    connects(reversed, rank, backwards, expect);
    if (rank == ranks.front()) return living.arrive_and_drop();
    living.arrive_and_wait();
    Transport last = shrinks_without(next, 0, ranks, expect);
    connects(last, rank, ranks, expect);
}

}  // namespace zeropp_test
