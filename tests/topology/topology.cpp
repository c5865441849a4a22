#include <zeropp/topology/topology.hpp>

#include "conformance/topology_laws.hpp"
#include "support/catch.hpp"

#include <array>
#include <cstddef>

namespace {

/// A user's own topology: two groups of two, ranks 0 and 3 in the first. The table is its own memory.
struct crossed {
    std::array<int, 4> slots{0, 1, 3, 2};

    int size() const { return 4; }
    int groups() const { return 2; }
    int group_size(int) const { return 2; }
    int group_of(int rank) const { return rank == 0 || rank == 3 ? 0 : 1; }
    int index_of(int rank) const { return rank / 2; }
    int rank_of(int group, int index) const { return slots[static_cast<std::size_t>(index * 2 + group)]; }
    zeropp::slice_order order() const { return {2, 0, 0, slots.data()}; }
    friend bool operator==(const crossed&, const crossed&) = default;
};

struct not_comparable : crossed {
    bool operator==(const not_comparable&) const = delete;
};

struct without_order {
    int size() const { return 1; }
    bool operator==(const without_order&) const = default;
};

}  // namespace

TEST_CASE("the topology concept asks for a regular value with an order", "[topology]") {
    STATIC_REQUIRE(zeropp::topology<crossed>);
    STATIC_REQUIRE_FALSE(zeropp::topology<not_comparable>);
    STATIC_REQUIRE_FALSE(zeropp::topology<without_order>);
    STATIC_REQUIRE_FALSE(zeropp::topology<int>);
}

TEST_CASE("a user's topology can obey the laws of topologies", "[topology]") { zeropp_test::topology_laws(crossed()); }
