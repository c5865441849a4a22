/// \file
/// three_level: sites of nodes of ranks.

#include <zeropp/topology/three_level.hpp>

#include "../../examples/c/src/nodes_in_sites.hpp"
#include "conformance/topology_laws.hpp"
#include "support/catch.hpp"
#include "support/expectations.hpp"

#include <zeropp/topology/two_level.hpp>

#include <vector>

using zeropp::three_level;
using ranks = std::vector<int>;

TEST_CASE("three_level keeps the laws of topologies", "[topology][three_level]") {
    for (int sites = 1; sites != 4; ++sites) {
        for (int nodes = 1; nodes != 4; ++nodes) {
            for (int of_node = 1; of_node != 4; ++of_node) {
                INFO(sites << " sites of " << nodes << " nodes of " << of_node << " ranks");
                zeropp_test::topology_laws(three_level(sites, nodes, of_node));
            }
        }
    }
    zeropp_test::topology_laws(three_level());
}

TEST_CASE("three_level: peers differ in one coordinate", "[topology][three_level]") {
    // Ranks of site 0: 0 1 | 2 3 | 4 5, and of site 1: 6 7 | 8 9 | 10 11.
    const three_level t(2, 3, 2);
    CHECK(zeropp::peer_ranks(t, 0, 9) == ranks{8, 9});
    CHECK(zeropp::peer_ranks(t, 1, 9) == ranks{7, 9, 11});
    CHECK(zeropp::peer_ranks(t, 2, 9) == ranks{3, 9});
    // Nodes 0 and 3 are the first of their sites.
    CHECK(t.group_of(0) == 0);
    CHECK(t.group_of(6) == 1);
    CHECK(t.group_of(2) == 2);
    CHECK(zeropp::slots_beyond(t, 0) == 6);
    CHECK(zeropp::slots_beyond(t, 1) == 2);
    CHECK(zeropp::slots_beyond(t, 2) == 1);
    CHECK_FALSE(zeropp::slots_are_ranks(t));
    CHECK(zeropp::slots_are_ranks(three_level(1, 3, 1)));
    CHECK(zeropp::topology_digest(t) != zeropp::topology_digest(zeropp::two_level(6, 2)));
    CHECK(zeropp::topology_digest(three_level(1, 3, 2)) == zeropp::topology_digest(zeropp::two_level(3, 2)));
}

TEST_CASE("the C library's nodes in sites keep the laws of topologies", "[topology][three_level]") {
    using zeropp_c::nodes_in_sites;
    const std::vector<ranks> in_sites{
        {0, 0, 1, 1, 2, 2, 3, 3}, {2, 2, 0, 0, 3, 3, 1, 1}, {0, 2, 1, 3}, {0, 0, 0}, {4, 1}};
    for (const ranks& nodes : in_sites) zeropp_test::topology_laws(nodes_in_sites(nodes, 2));
    zeropp_test::topology_laws(nodes_in_sites());
    const three_level t(2, 3, 2);
    const ranks nodes{0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5};
    CHECK(zeropp::topology_digest(nodes_in_sites(nodes, 3)) == zeropp::topology_digest(t));
    CHECK(zeropp::topology_digest(nodes_in_sites(nodes, 2)) == zeropp::topology_digest(three_level(3, 2, 2)));
    for (const int one_site : {0, 6}) {
        CHECK(zeropp::topology_digest(nodes_in_sites(nodes, one_site)) ==
              zeropp::topology_digest(zeropp::two_level(6, 2)));
    }
    // Without sites, nodes of any sizes and names.
    const ranks unequal{-3, 5, 5, -3, -3, 5, 5};
    zeropp_test::topology_laws(nodes_in_sites(unequal, 0));
    CHECK(zeropp::topology_digest(nodes_in_sites(unequal, 0)) == zeropp::topology_digest(zeropp::two_level(unequal)));
}

TEST_CASE("three_level: survivors stay on their nodes and sites", "[topology][three_level]") {
    const three_level t(2, 3, 2);
    CHECK(t.shrink(ranks{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}) == t);
    CHECK(t.shrink(ranks{0, 3, 5, 6, 9, 11}) == three_level(2, 3, 1));  // a rank of each node
    CHECK(t.shrink(ranks{2, 3, 4, 5, 6, 7, 8, 9}) == three_level(2, 2, 2));
    CHECK(t.shrink(ranks{6, 7, 0, 1}) == three_level(2, 1, 2));
    CHECK(t.shrink(ranks{7, 8}) == three_level(1, 2, 1));
    CHECK(t.shrink(ranks{9}) == three_level(1, 1, 1));
    for (const ranks& unequal : {ranks{}, ranks{0, 1, 2}, ranks{0, 1, 2, 3, 6, 7}, ranks{0, 6, 7, 8}, ranks{0, 2, 1, 3},
                                 ranks{0, 6, 2, 8}, ranks{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10}}) {
        INFO(zeropp::detail::text_of(unequal));
        CHECK_THROWS_WITH(t.shrink(unequal),
                          "three_level: expected survivors on sites of as many nodes of as many ranks, given " +
                              zeropp::detail::text_of(unequal) + "; `nodes()` shrinks to any");
    }
    CHECK_THROWS_WITH(t.shrink(ranks{0, 12}), "three_level: expected a rank from 0 to 11, given 12");
    CHECK(t.nodes() == zeropp::two_level(6, 2));
    CHECK(t.nodes().shrink(ranks{0, 1, 2, 6}) == zeropp::two_level::of_nodes({2, 1, 1}));
}

TEST_CASE("three_level refuses sizes without ranks, and more ranks than an int counts", "[topology][three_level]") {
    const auto message = [](int sites, int nodes, int of_node) {
        return zeropp_test::thrown<zeropp::precondition_error>([&] { three_level(sites, nodes, of_node); });
    };
    const std::string expected =
        "three_level: expected at least 1 site, node and rank, and at most 2147483647 ranks, given ";
    CHECK(message(0, 1, 1) == expected + "0 x 1 x 1");
    CHECK(message(1, -1, 1) == expected + "1 x -1 x 1");
    CHECK(message(1, 1, 0) == expected + "1 x 1 x 0");
    CHECK(message(2, 1 << 15, 1 << 15) == expected + "2 x 32768 x 32768");
    CHECK(message(1 << 30, 1 << 30, 1 << 30) == expected + "1073741824 x 1073741824 x 1073741824");
}
