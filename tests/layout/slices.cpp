#include <zeropp/layout/slices.hpp>

#include <zeropp/topology/two_level.hpp>

#include "support/catch.hpp"

#include <cstddef>
#include <span>
#include <vector>

namespace {

using zeropp::partition;
using zeropp::slice_order;
using zeropp::slices;
using zeropp::two_level;

/// Whether the runs [first, first + slots) x [begin, begin + count) visit each of `elements` elements exactly once.
bool visits_once(std::size_t elements, const two_level& t, std::size_t chunk, int slots) {
    const partition part(elements, t.size());
    std::vector<int> visits(elements);
    for (std::size_t begin = 0; begin < part.slice_size(); begin += chunk) {
        for (int first = 0; first != t.size(); first += slots) {
            const slices run{part, t.order(), begin, chunk, first, slots};
            for (int s = 0; s != slots; ++s) {
                if (run.size(s) > chunk) return false;
                for (std::size_t i = 0; i != run.size(s); ++i) ++visits.at(run.offset(s) + i);
            }
        }
    }
    for (const int v : visits) {
        if (v != 1) return false;
    }
    return true;
}

}  // namespace

TEST_CASE("slice_order is the identity as default-constructed", "[topology][slice_order]") {
    const slice_order order;
    for (int slot = 0; slot != 100; ++slot) CHECK(order.rank(slot) == slot);
}

TEST_CASE("slice_order puts the counterparts of an index side by side", "[topology][slice_order]") {
    const two_level consecutive(2, 3);
    const int expected[] = {0, 3, 1, 4, 2, 5};
    for (int slot = 0; slot != 6; ++slot) CHECK(consecutive.order().rank(slot) == expected[slot]);
    const std::vector<int> irregular{0, 1, 1, 0};
    const two_level table{std::span<const int>(irregular)};
    const int expected_of_table[] = {0, 1, 3, 2};
    for (int slot = 0; slot != 4; ++slot) CHECK(table.order().rank(slot) == expected_of_table[slot]);
}

TEST_CASE("slices visit every element of a tensor once, whatever the chunk", "[topology][slice_order]") {
    const std::vector<int> irregular{0, 1, 1, 2, 0, 2};
    const two_level topologies[] = {two_level(2, 3), two_level(3, 2), two_level(1, 6), two_level(6, 1),
                                    two_level(std::span<const int>(irregular))};
    for (const two_level& t : topologies) {
        for (const std::size_t elements : {1u, 5u, 6u, 7u, 12u, 61u, 600u}) {
            for (const std::size_t chunk : {1u, 3u, 16u, 1000u}) {
                INFO(elements << " elements in chunks of " << chunk << " over " << t.groups() << " groups");
                CHECK(visits_once(elements, t, chunk, t.size()));
                CHECK(visits_once(elements, t, chunk, t.groups()));
                CHECK(visits_once(elements, t, chunk, 1));
            }
        }
    }
}

TEST_CASE("slices end where the slice of their rank ends", "[topology][slice_order]") {
    // 10 elements over 4 ranks: 3, 3, 3, 1.
    const slices run{partition(10, 4), slice_order{}, 2, 5, 1, 3};
    CHECK(run.offset(0) == 3 + 2);
    CHECK(run.size(0) == 1);
    CHECK(run.offset(1) == 6 + 2);
    CHECK(run.size(1) == 1);
    CHECK(run.size(2) == 0);
    const slices whole{partition(10, 4), slice_order{}, 0, 3, 0, 4};
    CHECK(whole.size(3) == 1);
    const slices behind{partition(10, 4), slice_order{}, 3, 3, 0, 4};
    for (int s = 0; s != 4; ++s) CHECK(behind.size(s) == 0);
}

TEST_CASE("slices::single is part of one tensor", "[topology][slice_order]") {
    const slices part = slices::single(10, 4, 3);
    CHECK(part.slots == 1);
    CHECK(part.offset(0) == 4);
    CHECK(part.size(0) == 3);
    CHECK(slices::single(10, 8, 5).size(0) == 2);
    CHECK(slices::single(10, 10, 5).size(0) == 0);
    CHECK(slices::single(10, 12, 5).size(0) == 0);
    CHECK(slices::single(0, 0, 5).size(0) == 0);
    CHECK(slices::single(std::size_t{1} << 40, (std::size_t{1} << 40) - 1, 5).size(0) == 1);
}
