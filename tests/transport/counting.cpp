#include <zeropp/transport/counting.hpp>

#include "conformance/counting_laws.hpp"
#include "conformance/decorators.hpp"
#include "conformance/error_laws.hpp"
#include "support/catch.hpp"
#include "support/expectations.hpp"
#include "support/on_threads.hpp"

#include <zeropp/topology/two_level.hpp>

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

namespace {

using namespace zeropp_test;
using zeropp::counting;
using zeropp::flat;
using zeropp::thread_transport;
using zeropp::two_level;

const std::vector<std::vector<int>> maps{
    {0}, {0, 0}, {0, 1}, {0, 0, 0, 0}, {0, 0, 1, 1}, {0, 1, 0, 1}, {0, 1, 2, 3}, {0, 1, 1, 2, 0, 2}, {0, 0, 0, 1, 1, 1},
};

template <class Inner>
void counts_exactly_over() {
    for (const std::vector<int>& map : maps) {
        on_threads(static_cast<int>(map.size()), "counting", [&](thread_transport& base, expectations& expect) {
            auto inner = Inner::wrap(base);
            counting world(std::move(inner), two_level(std::span<const int>(map)));
            counts_exactly(world, map, expect);
        });
    }
}

}  // namespace

TEST_CASE("counting counts every byte on the link it crosses", "[transport][counting]") {
    counts_exactly_over<plain>();
    counts_exactly_over<checking>();
    on_threads(4, "counting on a flat topology", [](thread_transport& base, expectations& expect) {
        counting world(base, flat(4));
        counts_exactly(world, {0, 0, 0, 0}, expect);
    });
}

TEST_CASE("counting keeps its totals in copies and moves", "[transport][counting]") {
    on_threads(2, "copies of counting", [](thread_transport& base, expectations& expect) {
        counting world(base, flat(2));
        counting copy = world;
        std::vector<std::byte> memory(2 * 8);
        copy.all_gather(zeropp::host(), memory.data() + copy.rank() * 8, memory.data(), 8);
        equals(world.total(), 0, 8, 0, expect);
        const counting moved = std::move(copy);
        equals(moved.total(), 0, 8, 0, expect);
    });
}

TEST_CASE("counting does not count a collective that does not begin", "[transport][counting]") {
    on_threads(2, "collectives with problems", [](thread_transport& base, expectations& expect) {
        counting world(base, flat(2));
        const auto begins = [&] { zeropp::begin_collective(world, a_call(), "a problem"); };
        expect.equal(thrown<zeropp::precondition_error>(begins), "gather: a problem");
        equals(world.total(), 0, 0, 0, expect);
    });
}

TEST_CASE("counting below checked sees the comparison as a collective of its own", "[transport][counting]") {
    on_threads(4, "checked<counting>", [](thread_transport& base, expectations& expect) {
        counting below(base, two_level(2, 2));
        zeropp::checked world(below);
        std::vector<std::byte> memory(4 * 8);
        for (int i = 0; i != 3; ++i) {
            zeropp::begin_collective(world, a_call(), "");
            world.all_gather(zeropp::host(), memory.data() + world.rank() * 8, memory.data(), 8);
        }
        equals(traffic_of(below, "gather"), 3, 3 * 8, 3 * 16, expect);
        expect.equal(traffic_of(below, "checked").calls, 3);
        expect(traffic_of(below, "checked").intra_node_bytes > 0, "the comparison to cost something");
    });
}

TEST_CASE("counting refuses a topology of another size", "[transport][counting]") {
    on_threads(3, "a topology of another size", [](thread_transport& base, expectations& expect) {
        expect.equal(thrown<zeropp::precondition_error>([&] { counting(base, two_level(2, 2)); }),
                     "counting: expected a topology of the transport's 3 ranks, given one of 4");
    });
}
