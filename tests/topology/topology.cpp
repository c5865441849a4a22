#include <zeropp/topology/topology.hpp>

#include "conformance/topology_laws.hpp"
#include "support/catch.hpp"

#include <zeropp/elastic/partners.hpp>
#include <zeropp/topology/columns.hpp>
#include <zeropp/topology/flat.hpp>
#include <zeropp/topology/two_level.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <vector>

namespace {

/// A user's own topology: two groups of two, ranks 0 and 3 in the first. The table is its own memory.
struct crossed {
    static constexpr int levels = 2;
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

TEST_CASE("digests are of the places of ranks, not of types or counts", "[topology]") {
    using zeropp::topology_digest;
    using zeropp::two_level;
    CHECK(topology_digest(zeropp::flat(4)) == topology_digest(two_level(1, 4)));
    CHECK(topology_digest(crossed()) == topology_digest(two_level(std::array{0, 1, 1, 0})));
    std::set<std::uint64_t> digests;
    for (const auto& sizes : {std::vector{3, 5, 2}, {5, 3, 2}, {2, 3, 5}, {10}, {5, 5}, {3, 5, 2, 1}}) {
        digests.insert(topology_digest(two_level::of_nodes(std::span<const int>(sizes))));
    }
    digests.insert(topology_digest(two_level(10, 1)));
    digests.insert(topology_digest(two_level(std::array{0, 1, 0, 1, 0, 1, 0, 1, 0, 1})));
    CHECK(digests.size() == 8);
}

TEST_CASE("ranks that do not exist are refused", "[topology]") {
    const zeropp::two_level ranks(2, 2);
    for (const int rank : {-1, 4, 5}) {
        const std::vector<int> one{rank};
        const std::string words = "expected a rank from 0 to 3, given " + std::to_string(rank);
        CHECK_THROWS_WITH(ranks.shrink(one), "two_level: " + words);
        CHECK_THROWS_WITH(zeropp::flat(4).shrink(one), "flat: " + words);
        CHECK_THROWS_WITH(zeropp::peer_ranks(ranks, 0, rank), "peer_ranks: " + words);
        CHECK_THROWS_WITH(zeropp::peer_ranks(ranks, 1, rank), "peer_ranks: " + words);
        CHECK_THROWS_WITH(zeropp::partner_ranks(ranks, rank), "partner_ranks: " + words);
        CHECK_THROWS_WITH(zeropp::column_ranks(ranks, rank),
                          "column_ranks: expected a column from 0 to 1, given " + std::to_string(rank));
        CHECK_THROWS_WITH(zeropp::rounds_of(ranks, rank),
                          "rounds_of: expected a group from 0 to 1, given " + std::to_string(rank));
    }
}

TEST_CASE("a user's topology can obey the laws of topologies", "[topology]") { zeropp_test::topology_laws(crossed()); }
