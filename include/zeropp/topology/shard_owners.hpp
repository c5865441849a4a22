#pragma once
/// \file
/// A topology in which some nodes own no shards.

#include <zeropp/core/error.hpp>
#include <zeropp/topology/columns.hpp>
#include <zeropp/topology/topology.hpp>
#include <zeropp/topology/two_level.hpp>

#include <concepts>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace zeropp {

/// The first groups of a topology, such as trainers. The ranks of these groups own the shards. The ranks of other
/// groups, such as servers of the trained model, hold copies. A shard_owners is itself a topology: the owners as a
/// world, numbered in rank order, over which `partition` divides tensors. A shard_owners can replace a topology in a
/// secondary_replica, in sizes of storage and scratch, and in a tensor_list of whole tensors.
class shard_owners {
public:
    static constexpr int levels = 2;

    /// Makes a topology of a single rank, which owns all shards.
    shard_owners() = default;

    /// Makes the ranks of the first `groups` groups of `ranks` the owners. With three levels, these must be all groups.
    /// Throws precondition_error unless `groups` is from 1 to the number of groups. Also throws if `ranks` does not
    /// number indices by rank and, with one or two levels, groups by their lowest rank. Also throws if a later group is
    /// larger than all the owners' groups: some of its ranks would have no shards.
    template <class Topology>
        requires(!std::same_as<Topology, shard_owners> && topology<Topology>)
    shard_owners(const Topology& ranks, int groups)
        : all_(part(ranks, ranks.groups())), owners_(part(ranks, groups)), digest_of_all_(topology_digest(ranks)) {
        for (int r = 0; r != ranks.size(); ++r) {
            if (all_.group_of(r) == ranks.group_of(r) && all_.index_of(r) == ranks.index_of(r)) continue;
            throw precondition_error("shard_owners",
                                     "a topology that numbers groups by their lowest ranks, and indices by ranks",
                                     "group " + std::to_string(ranks.group_of(r)) + " and index " +
                                         std::to_string(ranks.index_of(r)) + " for rank " + std::to_string(r));
        }
        if (const int largest = largest_group_size(ranks); largest_group_size(owners_) != largest) {
            throw precondition_error("shard_owners",
                                     "owners with a group of " + std::to_string(largest) + " ranks, the largest",
                                     group_sizes_text(owners_));
        }
    }

    /// All ranks, owners or not.
    const two_level& all() const { return all_; }
    /// Hash (`topology_digest`) of the whole topology, with its levels.
    std::uint64_t digest_of_all() const { return digest_of_all_; }

    int size() const { return owners_.size(); }
    int groups() const { return owners_.groups(); }
    int group_size(int group) const { return owners_.group_size(group); }
    int group_of(int owner) const { return owners_.group_of(owner); }
    int index_of(int owner) const { return owners_.index_of(owner); }
    int rank_of(int group, int index) const { return owners_.rank_of(group, index); }
    slice_order order() const { return owners_.order(); }

    friend bool operator==(const shard_owners&, const shard_owners&) = default;
    /// True if the owners' shards move along `level`, to other owners or to ranks that own none.
    friend bool has_hop(const shard_owners& ranks, int level) { return zeropp::has_hop(ranks.all(), level); }
    /// Largest number of rounds of a group, of owners or not.
    friend int most_rounds(const shard_owners& ranks) { return zeropp::most_rounds(ranks.all()); }
    /// Slots of owners that `rank`, one of the ranks of `all()`, serves: it moves messages of these slots between
    /// groups.
    friend served_slots served_by(const shard_owners& ranks, int rank) {
        served_slots served = zeropp::served_by(ranks.all(), rank);
        served.groups = ranks.groups();
        return served;
    }

private:
    /// Topology of the ranks in the first `groups` groups of `ranks`. Throws precondition_error unless `groups` is from
    /// 1 to the number of groups or, with three levels, that number.
    template <class Topology>
    static two_level part(const Topology& ranks, int groups) {
        const int fewest = Topology::levels > 2 ? ranks.groups() : 1;
        if (groups < fewest || groups > ranks.groups()) {
            throw precondition_error("shard_owners",
                                     (fewest == 1 ? "1 to " : "three levels with shards on all ") +
                                         std::to_string(ranks.groups()) + " groups",
                                     std::to_string(groups));
        }
        std::vector<int> group_of_rank;
        for (int r = 0; r != ranks.size(); ++r) {
            if (ranks.group_of(r) < groups) group_of_rank.push_back(ranks.group_of(r));
        }
        return two_level(std::span<const int>(group_of_rank), Topology::levels > 2);
    }

    two_level all_;
    two_level owners_;
    std::uint64_t digest_of_all_ = all_.digest();
};

namespace detail {
/// The ranks of all groups of `ranks`, as owners of shards.
template <topology Topology>
shard_owners owners_of(const Topology& ranks) {
    return shard_owners(ranks, ranks.groups());
}
/// Returns `owners`.
inline const shard_owners& owners_of(const shard_owners& owners) { return owners; }
}  // namespace detail

}  // namespace zeropp
