#include <zeropp/topology/two_level.hpp>

#include "conformance/topology_laws.hpp"
#include "support/catch.hpp"
#include "support/expectations.hpp"

#include <zeropp/topology/columns.hpp>
#include <zeropp/topology/flat.hpp>

#include <cstddef>
#include <limits>
#include <span>
#include <string>
#include <vector>

namespace {

using zeropp::two_level;
using zeropp_test::thrown;

two_level of_nodes(const std::vector<int>& node_of_rank) { return two_level(std::span<const int>(node_of_rank)); }

std::string error_of_nodes(const std::vector<int>& node_of_rank) {
    return thrown<zeropp::precondition_error>([&] { of_nodes(node_of_rank); });
}

}  // namespace

TEST_CASE("two_level of consecutive ranks obeys the laws of topologies", "[topology][two_level]") {
    for (int nodes = 1; nodes != 7; ++nodes) {
        for (int ranks_per_node = 1; ranks_per_node != 7; ++ranks_per_node) {
            INFO(nodes << " nodes of " << ranks_per_node);
            const two_level t(nodes, ranks_per_node);
            CHECK(t.groups() == nodes);
            CHECK(t.group_size(0) == ranks_per_node);
            CHECK(t.group_of(ranks_per_node - 1) == 0);
            CHECK(t.group_of(t.size() - 1) == nodes - 1);
            CHECK(t.order().table == nullptr);  // strides say it: the GPU needs no table
            zeropp_test::topology_laws(t);
            CHECK(two_level::of_size(nodes * ranks_per_node, ranks_per_node) == t);
        }
    }
    CHECK(two_level() == two_level(1, 1));
    CHECK(two_level(2, 3) != two_level(3, 2));
}

TEST_CASE("two_level of round-robin ranks obeys the laws of topologies", "[topology][two_level]") {
    for (int nodes = 1; nodes != 6; ++nodes) {
        for (int ranks_per_node = 1; ranks_per_node != 6; ++ranks_per_node) {
            INFO(nodes << " nodes of " << ranks_per_node);
            std::vector<int> node_of_rank;
            for (int rank = 0; rank != nodes * ranks_per_node; ++rank) node_of_rank.push_back(rank % nodes);
            const two_level t = of_nodes(node_of_rank);
            CHECK(t.groups() == nodes);
            CHECK(t.group_size(0) == ranks_per_node);
            CHECK(t.rank_of(nodes - 1, ranks_per_node - 1) == t.size() - 1);
            CHECK(t.order().table == nullptr);
            zeropp_test::topology_laws(t);
        }
    }
}

TEST_CASE("two_level of irregular maps obeys the laws of topologies", "[topology][two_level]") {
    const std::vector<std::vector<int>> maps{
        {0, 1, 1, 0}, {0, 0, 1, 2, 1, 2}, {5, 5, 5, 1, 2, 1, 2, 1, 2}, {0, 1, 2, 2, 1, 0}, {2, 0, 1, 0, 1, 2, 1, 2, 0},
    };
    for (const auto& map : maps) {
        const two_level t = of_nodes(map);
        INFO("first ranks " << map[0] << map[1] << map[2] << map[3]);
        CHECK(t.order().table != nullptr);
        zeropp_test::topology_laws(t);
        for (std::size_t a = 0; a != map.size(); ++a) {
            for (std::size_t b = 0; b != map.size(); ++b) {
                const bool together = t.group_of(static_cast<int>(a)) == t.group_of(static_cast<int>(b));
                CHECK(together == (map[a] == map[b]));
            }
        }
    }
}

TEST_CASE("two_level takes any integers as names of nodes, and forgets them", "[topology][two_level]") {
    constexpr int lowest = std::numeric_limits<int>::min();
    constexpr int highest = std::numeric_limits<int>::max();
    CHECK(of_nodes({7, 7, -3, -3}) == two_level(2, 2));
    CHECK(of_nodes({highest, highest, highest, lowest, lowest, lowest}) == two_level(2, 3));
    CHECK(of_nodes({-1, -2, -3}) == two_level(3, 1));
    CHECK(of_nodes({-1, -1, -1}) == two_level(1, 3));
    CHECK(of_nodes({9, 4, 9, 4}) == of_nodes({0, 1, 0, 1}));
    CHECK(of_nodes({9, 4, 9, 4}) != two_level(2, 2));
    zeropp_test::topology_laws(of_nodes({highest, lowest, 0, lowest, 0, highest}));
}

TEST_CASE("two_level of nodes of unequal size obeys the laws of topologies", "[topology][two_level]") {
    const std::vector<std::vector<int>> maps{{0, 1, 1, 1, 1, 1, 1, 1},       {0, 0, 0, 1, 1, 1, 1, 1, 2, 2},
                                             {0, 1, 1, 0, 0, 2, 1, 0, 2},    {5, 2, 9, 2, 5, 5},
                                             {0, 0, 0, 0, 1, 1, 1, 2, 2, 3}, {1, 1, 1, 0}};
    for (const auto& map : maps) {
        const two_level t = of_nodes(map);
        INFO("first ranks " << map[0] << map[1] << map[2] << map[3]);
        zeropp_test::topology_laws(t);
        CHECK_FALSE(zeropp::has_equal_groups(t));
    }
    const two_level t = two_level::of_nodes({8, 8, 7});
    CHECK(t.size() == 23);
    CHECK(t.groups() == 3);
    CHECK(t.group_size(1) == 8);
    CHECK(t.group_size(2) == 7);
    CHECK(zeropp::largest_group_size(t) == 8);
    CHECK(zeropp::slot_count(t) == 24);
    CHECK(t.order().table == nullptr);  // strides say it: the GPU needs no table
    zeropp_test::topology_laws(t);
    CHECK(two_level::of_nodes({8, 7, 8}).order().table != nullptr);
    CHECK(two_level::of_nodes({3, 3}) == two_level(2, 3));
    CHECK(two_level::of_nodes({2, 1}) == of_nodes({7, 7, 3}));
    CHECK(two_level::of_nodes({2, 1}) != two_level::of_nodes({1, 2}));
    CHECK(thrown<zeropp::precondition_error>([] { two_level::of_nodes({2, 0}); }) ==
          "two_level: expected at least 1 rank on every node, given 0 on node 1");
    CHECK(thrown<zeropp::precondition_error>([] { two_level::of_nodes({}); }) ==
          "two_level: expected at least 1 rank, given none");
}

TEST_CASE("a smaller group serves the columns of larger ones in rounds", "[topology][two_level]") {
    // Groups of 3, 5 and 2 ranks: ranks 0 to 2, 3 to 7, 8 and 9.
    const two_level t = two_level::of_nodes({3, 5, 2});
    using ranks = std::vector<int>;
    CHECK(zeropp::column_ranks(t, 0) == ranks{0, 3, 8});
    CHECK(zeropp::column_ranks(t, 1) == ranks{1, 4, 9});
    CHECK(zeropp::column_ranks(t, 2) == ranks{2, 5, 8});
    CHECK(zeropp::column_ranks(t, 3) == ranks{1, 6, 9});
    CHECK(zeropp::column_ranks(t, 4) == ranks{2, 7, 9});
    CHECK(zeropp::most_rounds(t) == 3);
    CHECK(zeropp::rounds_of(t, 0).count() == 2);
    CHECK(zeropp::rounds_of(t, 1).count() == 1);
    CHECK(zeropp::rounds_of(t, 0).served(0) == 1);
    CHECK(zeropp::rounds_of(t, 2).served(1) == 3);
    CHECK(zeropp::group_sizes_text(t) == "3 groups of 3, 5, 2 ranks");
    CHECK(zeropp::group_sizes_text(two_level(2, 4)) == "2 groups of 4 ranks");
    CHECK(thrown<zeropp::precondition_error>([&] { zeropp::peer_ranks(t, 1, 0); }) ==
          "peer_ranks: expected groups of equal size, given 3 groups of 3, 5, 2 ranks");
    CHECK(zeropp::peer_ranks(two_level(2, 3), 1, 1) == ranks{1, 4});
    CHECK(zeropp::peer_ranks(t, 0, 4) == ranks{3, 4, 5, 6, 7});
}

TEST_CASE("two_level keeps survivors on their nodes", "[topology][two_level]") {
    const std::vector<int> nodes{7, 5, 7, 5, 3, 3};
    const two_level six{std::span<const int>(nodes)};
    CHECK(six.shrink(std::vector<int>{1, 3, 4, 5}) == two_level(2, 2));
    CHECK(six.shrink(std::vector<int>{0, 1, 2, 3}) == two_level(std::span<const int>(nodes).first(4)));
    CHECK(six.shrink(std::vector<int>{2, 4}) == two_level(2, 1));
}

TEST_CASE("two_level refuses arguments without ranks", "[topology][two_level]") {
    const auto error = [](int nodes, int ranks_per_node) {
        return thrown<zeropp::precondition_error>([&] { two_level(nodes, ranks_per_node); });
    };
    const std::string expected = "two_level: expected at least 1 node of at least 1 rank, given ";
    CHECK(error(0, 4) == expected + "0 nodes of 4");
    CHECK(error(4, 0) == expected + "4 nodes of 0");
    CHECK(error(-1, 2) == expected + "-1 nodes of 2");
    CHECK(error(2, -1) == expected + "2 nodes of -1");
    CHECK(error(-2, -2) == expected + "-2 nodes of -2");
    CHECK(error_of_nodes({}) == "two_level: expected at least 1 rank, given none");
}

TEST_CASE("two_level refuses more slots than an int counts, and has ranks beyond the reach of strides",
          "[topology][two_level]") {
    std::vector<int> sizes(60'000, 1);
    sizes[0] = 40'000;
    CHECK(
        thrown<zeropp::precondition_error>([&] { two_level::of_nodes(sizes); }) ==
        "two_level: expected at most 2147483647 slots, the nodes times the ranks of the largest, given 60000 x 40000");
    CHECK(thrown<zeropp::precondition_error>([] { two_level(65'536, 65'536); }) ==
          "two_level: expected at most 2147483647 ranks, given more");
    // The first node's second rank comes last: its stride times the other node's ranks is more than an int.
    std::vector<int> nodes(60'002, 1);
    nodes.front() = nodes.back() = 0;
    const two_level far = of_nodes(nodes);
    CHECK(far.rank_of(0, 1) == 60'001);
    CHECK(far.order().rank(3) == 2);
    CHECK(zeropp::most_rounds(zeropp::flat(std::numeric_limits<int>::max())) == 1);
    CHECK(zeropp::rounds_of(zeropp::flat(std::numeric_limits<int>::max()), 0).count() == 1);
}

TEST_CASE("two_level::of_size divides, or says that it cannot", "[topology][two_level]") {
    CHECK(two_level::of_size(8, 4) == two_level(2, 4));
    CHECK(two_level::of_size(8, 8) == two_level(1, 8));
    CHECK(two_level::of_size(8, 1) == two_level(8, 1));
    const auto error = [](int size, int ranks_per_node) {
        return thrown<zeropp::precondition_error>([&] { two_level::of_size(size, ranks_per_node); });
    };
    const std::string expected = "two_level: expected a number of ranks per node that divides the ";
    CHECK(error(8, 3) == expected + "8 ranks, given 3");
    CHECK(error(8, 16) == expected + "8 ranks, given 16");
    CHECK(error(8, 0) == expected + "8 ranks, given 0");
    CHECK(error(8, -4) == expected + "8 ranks, given -4");
    CHECK(error(0, 4) == expected + "0 ranks, given 4");
    CHECK(error(-8, 4) == expected + "-8 ranks, given 4");
}
