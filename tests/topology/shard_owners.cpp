#include <zeropp/topology/shard_owners.hpp>

#include "conformance/topology_laws.hpp"
#include "support/catch.hpp"

#include <zeropp/topology/flat.hpp>

#include <span>
#include <vector>

namespace {

using zeropp::shard_owners;
using zeropp::two_level;

/// Numbers its two groups of one in the wrong order.
struct backwards : two_level {
    backwards() : two_level(2, 1) {}
    int group_of(int rank) const { return 1 - rank; }
};

}  // namespace

TEST_CASE("shard_owners are a topology of their own, numbered in the order of their ranks", "[topology]") {
    const std::vector<std::vector<int>> maps{
        {0}, {0, 0, 1, 1}, {0, 1, 0, 1}, {5, 2, 9, 2, 5, 9}, {2, 0, 1, 1, 2, 0, 0, 2, 1}, {0, 0, 0, 1, 2, 2}};
    for (const std::vector<int>& map : maps) {
        const two_level ranks{std::span<const int>(map)};
        for (int groups = 1; groups <= ranks.groups(); ++groups) {
            INFO(map.size() << " ranks, the first " << groups << " groups");
            const shard_owners owners(ranks, groups);
            zeropp_test::topology_laws(owners);
            CHECK(owners.groups() == groups);
            CHECK(owners.group_size(groups - 1) == ranks.group_size(groups - 1));
            CHECK(owners.all() == ranks);
            CHECK(has_hop(owners, 1) == (ranks.groups() > 1));
            int owner = 0;
            for (int r = 0; r != ranks.size(); ++r) {
                if (ranks.group_of(r) >= groups) continue;
                CHECK(owners.group_of(owner) == ranks.group_of(r));
                CHECK(owners.index_of(owner) == ranks.index_of(r));
                ++owner;
            }
            CHECK(owners.size() == owner);
            if (groups == ranks.groups()) CHECK(zeropp::detail::owners_of(ranks) == owners);
        }
    }
    CHECK(shard_owners(zeropp::flat(3), 1).order().table == nullptr);
    CHECK(shard_owners(two_level(4, 2), 3).order().table == nullptr);  // strides say it: the GPU needs no table
    CHECK(shard_owners(shard_owners(two_level(4, 2), 3).all(), 1) == shard_owners(two_level(4, 2), 1));
}

TEST_CASE("shard_owners are some of the groups that there are, and in a topology's order", "[topology]") {
    CHECK_THROWS_WITH(shard_owners(two_level(3, 2), 0), "shard_owners: expected 1 to 3 groups, given 0");
    CHECK_THROWS_WITH(shard_owners(two_level(3, 2), 4), "shard_owners: expected 1 to 3 groups, given 4");
    CHECK_THROWS_WITH(shard_owners(backwards(), 1),
                      "shard_owners: expected a topology that numbers groups by their lowest ranks, and indices by "
                      "ranks, given group 1 and index 0 for rank 0");
    CHECK_THROWS_WITH(shard_owners(two_level::of_nodes({2, 3, 3}), 1),
                      "shard_owners: expected owners with a group of 3 ranks, the largest, given 1 groups of 2 ranks");
}
