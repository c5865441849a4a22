#include <zeropp/transport/communicator.hpp>

#include "conformance/decorators.hpp"
#include "conformance/split_laws.hpp"
#include "support/catch.hpp"
#include "support/expectations.hpp"
#include "support/on_threads.hpp"

#include <zeropp/execution/host.hpp>
#include <zeropp/topology/flat.hpp>
#include <zeropp/topology/three_level.hpp>
#include <zeropp/topology/two_level.hpp>

#include <cstddef>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

namespace {

using namespace zeropp_test;
using zeropp::flat;
using zeropp::thread_transport;
using zeropp::three_level;
using zeropp::two_level;

/// Sends the messages `sent` for the slots `range`, each its slot's number, along `level` and later ones. They arrive
/// for the slots that `exchange` says, and in the end for the rank's own.
template <class Communicator>
void exchanges(Communicator& comm, int level, const zeropp::slot_range& range, const std::vector<int>& sent,
               expectations& expect) {
    const auto& ranks = comm.topology();
    while (level != Communicator::levels && !has_hop(ranks, level)) ++level;
    if (level == Communicator::levels) {
        expect.equal(range.first, slot_of(ranks, comm.rank()));
        expect.equal(range.count, 1);
        return;
    }
    std::vector<int> received(sent.size());
    const auto* from = reinterpret_cast<const std::byte*>(sent.data());
    auto* to = reinterpret_cast<std::byte*>(received.data());
    const auto summed = [&](const zeropp::slot_range& kept, int contributors) {
        for (int i = 0; i != kept.count * contributors; ++i) {
            expect.equal(received[static_cast<std::size_t>(i)], kept.first + i % kept.count);
        }
        exchanges(comm, level + 1, kept, {received.begin(), received.begin() + kept.count}, expect);
    };
    comm.exchange(level, zeropp::host(), range, {from, to, sizeof(int)}, summed);
}

template <class Topology>
void joins_on_threads(const Topology& topology) {
    on_threads(topology.size(), "a communicator", [&](thread_transport& world, expectations& expect) {
        joins(topology, world, expect);
        std::vector<int> slots(static_cast<std::size_t>(slot_count(topology)));
        std::iota(slots.begin(), slots.end(), 0);
        zeropp::communicator comm(topology, world);
        exchanges(comm, 0, {0, slot_count(topology)}, slots, expect);
        joins(topology, both<counted, checking>::wrap(world), expect);
    });
}

}  // namespace

TEST_CASE("communicator connects each rank with its group and its counterparts", "[transport][communicator]") {
    for (const two_level& t :
         {two_level(1, 1), two_level(1, 4), two_level(2, 2), two_level(4, 1), two_level(3, 2), two_level(2, 3)}) {
        joins_on_threads(t);
    }
    const std::vector<std::vector<int>> maps{{0, 1, 0, 1}, {0, 1, 2, 0, 1, 2}, {0, 1, 1, 0}, {5, -1, 3, 3, 5, -1}};
    for (const auto& map : maps) joins_on_threads(two_level(std::span<const int>(map)));
    joins_on_threads(flat(1));
    joins_on_threads(flat(5));
    for (const three_level& t : {three_level(2, 2, 2), three_level(2, 3, 1), three_level(3, 1, 2), three_level(1, 2, 2),
                                 three_level(1, 1, 3), three_level(1, 1, 1)}) {
        joins_on_threads(t);
    }
    // Three levels with one site: nodes may differ in size.
    const three_level unequal = two_level(std::vector<int>{5, -1, 3, 3, 5, -1, 5});
    on_threads(unequal.size(), "nodes of one site",
               [&](thread_transport& world, expectations& expect) { joins(unequal, world, expect); });
}

TEST_CASE("communicator is a value that can be moved", "[transport][communicator]") {
    on_threads(4, "a moved communicator", [](thread_transport& world, expectations& expect) {
        zeropp::communicator made(two_level(2, 2), world);
        zeropp::communicator comm = std::move(made);
        connects(comm.peers(0), comm.rank(), comm.rank() < 2 ? std::vector<int>{0, 1} : std::vector<int>{2, 3}, expect);
        connects(comm.peers(1), comm.rank(), comm.rank() % 2 == 0 ? std::vector<int>{0, 2} : std::vector<int>{1, 3},
                 expect);
    });
}

TEST_CASE("communicator refuses a topology of another size", "[transport][communicator]") {
    on_threads(3, "a topology of another size", [](thread_transport& world, expectations& expect) {
        expect.equal(thrown<zeropp::precondition_error>([&] { zeropp::communicator(two_level(2, 2), world); }),
                     "communicator: expected a topology of the transport's 3 ranks, given one of 4");
        expect.equal(thrown<zeropp::precondition_error>([&] { zeropp::communicator(flat(2), world); }),
                     "communicator: expected a topology of the transport's 3 ranks, given one of 2");
    });
}
