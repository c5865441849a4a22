/// \file
/// three_level: sites of nodes of ranks.

#include <zeropp/topology/three_level.hpp>

#include "conformance/topology_laws.hpp"
#include "support/catch.hpp"
#include "support/expectations.hpp"

#include <zeropp/topology/two_level.hpp>

#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

using zeropp::three_level;
using zeropp::two_level;
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
    // Sites of one node have the places of nodes in one site, over other links.
    CHECK(zeropp::topology_digest(t) != zeropp::topology_digest(two_level(6, 2)));
    CHECK(zeropp::topology_digest(three_level(3, 1, 2)) != zeropp::topology_digest(three_level(1, 3, 2)));
}

TEST_CASE("three_level of any map of nodes to sites keeps the laws of topologies", "[topology][three_level]") {
    const std::vector<std::pair<ranks, ranks>> maps{{{0, 0, 1, 1, 2, 2, 3, 3}, {-7, -7, 5, 5}},
                                                    {{2, 2, 0, 0, 3, 3, 1, 1}, {1, 0, 1, 0}},
                                                    {{0, 2, 1, 3}, {0, 1, 1, 0}},
                                                    {{0, 1, 2, 0, 1, 2}, {3, 2, 1}},
                                                    {{0, 1, 1, 0, 2, 2, 3, 3}, {0, 1, 0, 1}},
                                                    {{0, 0, 0}, {9}},
                                                    {{-3, 5, 5, -3, -3, 5, 5}, {4, 4}}};
    for (const auto& [nodes, sites] : maps) {
        INFO(zeropp::detail::text_of(nodes) << " in " << zeropp::detail::text_of(sites));
        const two_level placed{std::span<const int>(nodes)};
        const three_level t(placed, sites);
        zeropp_test::topology_laws(t);
        CHECK(t.nodes() == placed);
        for (int a = 0; a != t.size(); ++a) {
            for (int b = 0; b != t.size(); ++b) {
                const auto site = [&](int rank) { return sites[static_cast<std::size_t>(placed.group_of(rank))]; };
                CHECK((zeropp::level_between(t, a, b) == 2) == (site(a) != site(b)));
                CHECK((t.group_of(a) == t.group_of(b)) == (placed.group_of(a) == placed.group_of(b)));
            }
        }
    }
    CHECK(three_level(two_level(6, 2), ranks{0, 0, 0, 1, 1, 1}) == three_level(2, 3, 2));
    CHECK(three_level(two_level(6, 2), ranks{8, 8, 3, 3, 5, 5}) == three_level(3, 2, 2));
    CHECK(three_level(two_level(6, 2), ranks{0, 1, 0, 1, 0, 1}) != three_level(2, 3, 2));
    const auto message = [](const two_level& nodes, const ranks& sites, const char* where = "three_level") {
        return zeropp_test::thrown<zeropp::precondition_error>([&] { three_level(nodes, sites, where); });
    };
    CHECK(message(two_level(4, 2), {0, 0, 0, 1}, "caller") ==
          "caller: expected as many nodes in each site, given sites of 3, 1 nodes");
    CHECK(message(two_level::of_nodes({3, 1, 2, 2}), {0, 0, 1, 1}) ==
          "three_level: expected nodes of equal size in several sites, given 4 groups of 3, 1, 2, 2 ranks");
    CHECK(message(two_level(4, 2), {0, 0, 1}) == "three_level: expected a site for each of the 4 nodes, given 3");
    CHECK(message(two_level(), {}) == "three_level: expected a site for each of the 1 nodes, given 0");
}

TEST_CASE("three_level of one site has the places of its nodes", "[topology][three_level]") {
    for (const two_level& nodes : {two_level(), two_level(3, 2), two_level(ranks{-3, 5, 5, -3, -3, 5, 5})}) {
        const three_level t = nodes;
        zeropp_test::topology_laws(t);
        CHECK(t.nodes() == nodes);
        CHECK(zeropp::topology_digest(t) == zeropp::topology_digest(nodes));
        CHECK((t.order().table == nullptr) == (nodes.order().table == nullptr));
        CHECK(t == three_level(nodes, ranks(static_cast<std::size_t>(nodes.groups()), 7)));
        CHECK(t.extent(1) == nodes.groups());
        CHECK(t.extent(2) == 1);
    }
    CHECK(three_level(1, 3, 2) == three_level(two_level(3, 2)));
    CHECK(three_level() == three_level(1, 1, 1));
}

TEST_CASE("three_level: survivors stay on their nodes and sites", "[topology][three_level]") {
    const three_level t(2, 3, 2);
    CHECK(t.shrink(ranks{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}) == t);
    CHECK(t.shrink(ranks{0, 3, 5, 6, 9, 11}) == three_level(2, 3, 1));  // a rank of each node
    CHECK(t.shrink(ranks{2, 3, 4, 5, 6, 7, 8, 9}) == three_level(2, 2, 2));
    CHECK(t.shrink(ranks{6, 7, 0, 1}) == three_level(2, 1, 2));
    CHECK(t.shrink(ranks{0, 6, 2, 8}) == three_level(two_level(4, 1), ranks{0, 1, 0, 1}));
    // On one site, nodes may differ in size.
    CHECK(t.shrink(ranks{0, 1, 2}) == three_level(two_level::of_nodes({2, 1})));
    CHECK(t.shrink(ranks{8, 6, 9, 7}) == three_level(two_level(ranks{0, 1, 0, 1})));
    CHECK(t.shrink(ranks{7, 8}) == three_level(1, 2, 1));
    CHECK(t.shrink(ranks{9}) == three_level(1, 1, 1));
    const auto refused = [&](const ranks& survivors, const std::string& problem) {
        CHECK_THROWS_WITH(t.shrink(survivors), problem);
    };
    refused({}, "two_level: expected at least 1 rank, given none");
    refused({0, 1, 2, 3, 6, 7}, "three_level: expected as many nodes in each site, given sites of 2, 1 nodes");
    refused({0, 6, 7}, "three_level: expected nodes of equal size in several sites, given 2 groups of 1, 2 ranks");
    refused({0, 12}, "three_level: expected a rank from 0 to 11, given 12");
    CHECK(t.nodes() == two_level(6, 2));
    CHECK(t.nodes().shrink(ranks{0, 1, 2, 6}) == two_level::of_nodes({2, 1, 1}));
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
