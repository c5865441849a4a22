#pragma once
/// \file
/// hpZ's storage as the base of differences: weights that a node keeps whole, and that updates bring up to date.

#include <zeropp/codec/codec.hpp>
#include <zeropp/collective/kept_messages.hpp>
#include <zeropp/core/text.hpp>
#include <zeropp/core/view.hpp>
#include <zeropp/execution/execution.hpp>
#include <zeropp/layout/operands.hpp>
#include <zeropp/layout/slices.hpp>
#include <zeropp/layout/wire_format.hpp>
#include <zeropp/quantizer/quantizer.hpp>
#include <zeropp/topology/columns.hpp>
#include <zeropp/topology/shard_owners.hpp>
#include <zeropp/topology/topology.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace zeropp {

/// An update of `replica` to `version` by quantized_update. `full` is the operand of whole tensors to gather after the
/// update, or `none`.
template <class Replica, class Full>
struct [[nodiscard]] replica_update {
    Replica& replica;
    std::uint64_t version;
    Full full;
};

/// This rank's part of a tensor, or of each tensor of a list, that the rank's group holds whole. A replica has the
/// shards of the ranks of one index in all groups, as the inter-node hop of an all-gather brings them. Its elements are
/// of type T, for the `Exact` cast_to<T>. `quantized_update` brings a replica up to date by differences.
/// `secondary_partition_gather` makes whole tensors of a group's replicas, in messages of `IntraNode`. Refers to the
/// caller's storage of `storage_bytes(...)`: as in hpZ, 1/k of the tensors for k ranks in a group.
///
/// If groups differ in size, ranks of smaller groups also keep shards of the indices that only larger groups have: of
/// all slots that they serve (served_slots).
///
/// If only some groups own shards (shard_owners), a replica has the owners' shards. Ranks of other groups keep the
/// shards of the owners of their index.
///
/// A replica has a version, which every update raises by one. To update a replica that has missed an update is an
/// error.
template <quantizer Exact, class Space, quantizer IntraNode = Exact>
class secondary_replica : public kept_messages<Exact, Space, IntraNode> {
    using base = kept_messages<Exact, Space, IntraNode>;

public:
    using element_type = typename Exact::element_type;

    /// An empty replica for `tensors`, an element count or a tensor_list of whole tensors, over `ranks`, on rank
    /// `rank`. `ranks` is a topology, or a shard_owners, of which `rank` need not be an owner. Allocates 24 bytes for
    /// each rank. For a list, allocates a table of 64 bytes for each tensor, and blocks in device_space. Throws
    /// precondition_error unless `rank` exists, a list is over `ranks`, and `storage` is large enough and aligned to 16
    /// bytes. Also throws if `ranks` does not number indices by rank and, with one or two levels, groups by their
    /// lowest rank.
    template <topology Topology, mutable_array_in<Space> Storage>
    secondary_replica(const Topology& ranks, int rank, const tensors_shape& tensors, Storage&& storage,
                      const IntraNode& intra_node = {})
        : base("secondary_replica", intra_node, tensors, {ranks.size()}, kept_by(ranks, rank), storage),
          owners_(detail::owners_of(ranks)), group_(owners_.all().group_of(rank)),
          index_(owners_.all().index_of(rank)) {
        base::keep_table(tensors, {elements_at(base::message()), own_elements()});
    }

    /// Bytes of storage for `tensors` over `ranks`, a topology or shard_owners, on the rank that keeps the most.
    template <topology Topology>
    static std::size_t storage_bytes(const Topology& ranks, const tensors_shape& tensors) {
        return most_served(ranks) * base::bytes_of(tensors, {ranks.size()});
    }
    /// Bytes of storage for `tensors` over `ranks` on `rank`: if groups differ in size, ranks of large groups keep
    /// fewer.
    template <topology Topology>
    static std::size_t storage_bytes(const Topology& ranks, const tensors_shape& tensors, int rank) {
        return kept_by(ranks, rank) * base::bytes_of(tensors, {ranks.size()});
    }

    /// An update of this replica to `version`, as an argument of quantized_update.
    replica_update<secondary_replica, none> to(std::uint64_t version) { return {*this, version, {}}; }
    /// An update of this replica to `version` that also gathers whole tensors into `full`, as an argument of
    /// quantized_update.
    template <mutable_tensors_in<Space> Full>
    auto to(std::uint64_t version, Full&& full) {
        using operand = decltype(detail::operand_of<Space>(full));
        return replica_update<secondary_replica, operand>{*this, version, detail::operand_of<Space>(full)};
    }

    /// Number of ranks in this rank's group.
    int group_size() const { return owners_.all().group_size(group_); }
    /// This rank's index in its group.
    int index() const { return index_; }

    /// The ranks that own shards.
    const shard_owners& owners() const { return owners_; }
    /// True if this rank owns shards.
    bool owns() const { return group_ < owners_.groups(); }
    /// This rank's index among `owners()`. Of n elements, this rank owns `partition(n, owners().size()).size(owner())`.
    /// Requires owns().
    int owner() const { return owners_.rank_of(group_, index_); }

    // Members for collectives. Stored messages are of `Exact`, one for each owners' slot that this rank serves, in
    // order.

    /// The owners' slots that this rank serves.
    served_slots served() const { return served_by(owners_, rank()); }
    /// The quantizer of stored messages.
    static Exact exact() { return {}; }
    /// Number of groups, with owners or without.
    int groups() const { return owners_.all().groups(); }
    /// Owner of each stored message's shard, in the order of storage; -1 for a slot without a rank.
    std::vector<int> kept_owners() const {
        std::vector<int> owners(kept_by(owners_, rank()), -1);
        for_each_served(owners_, rank(), [&](int i, int owner) { owners[static_cast<std::size_t>(i)] = owner; });
        return owners;
    }
    /// Address of this rank's message among `messages`, one of `bytes` bytes for each group that owns shards. If this
    /// rank owns none, address of the first message.
    std::byte* own_message(std::byte* messages, std::size_t bytes) const {
        return messages + static_cast<std::size_t>(place()) * bytes;
    }
    /// Index of this rank's message among the messages of all groups that own shards; 0 if this rank owns none.
    int place() const { return owns() ? group_ : 0; }

    /// All stored shards of one tensor, as a codec's argument: the first element's address.
    element_type* tensors(const slices&) const { return elements_at(base::message()); }
    /// All stored shards of a list, as a codec's argument: the first element's address for each tensor.
    tensor_table<element_type> tensors(const list_slices&) const { return base::template kept_table<element_type>(0); }
    /// This rank's own shard of one tensor, as a codec's argument: the first element's address.
    element_type* own(const slices&) const { return own_elements(); }
    /// This rank's own shards of a list, as a codec's argument: the first element's address for each tensor.
    tensor_table<element_type> own(const list_slices&) const { return base::template kept_table<element_type>(1); }
    /// The shards of slots `served` in a chunk, as a codec's argument that locates each shard in the storage.
    template <class Slices>
    packed_slices<Slices> stored(const Slices& chunk, const slot_range& served) const {
        return {chunk.in_slots(owners_.order(), served.first, served.count),
                base::message_bytes() / sizeof(element_type), served.place};
    }

    /// Number of messages that a group gathers.
    int slots() const { return slot_count(owners_); }
    /// Order of the messages that a group gathers.
    slice_order order() const { return owners_.order(); }
    /// Text that must be equal on all ranks: the number of groups that own shards. Empty if all do.
    short_text text() const {
        if (owners_.groups() == groups()) return {};
        return short_text().append(owners_.groups()).append(" of ").append(groups()).append(" groups own shards");
    }
    /// Gathers the messages of `chunk` from the group's ranks. Sends stored messages unchanged if the chunk has `all`
    /// elements and `IntraNode` is `Exact`; otherwise encodes. Returns the messages' address: `work`, or the storage.
    template <execution Execution, class Communicator, class Slices>
    const std::byte* gather(const Execution& exec, Communicator& comm, const Slices& chunk, bool all,
                            std::byte* work) const {
        const served_slots ranges = served();
        const std::size_t bytes = static_cast<std::size_t>(ranges.groups) * format_of<IntraNode>.bytes_of(chunk);
        return comm.gather_served(exec, work, bytes, [&](int i, std::byte* place) -> const std::byte* {
            if constexpr (std::same_as<Exact, IntraNode>) {
                if (all) return base::message(ranges[i].place);
            }
            codec<Execution>::write(exec, detail::in_phase(base::stored_as(), noise_phase::copy), tensors(chunk),
                                    stored(chunk, ranges[i]), place);
            return place;
        });
    }

    /// Why this replica was not made for `rank` of the topology `ranks`, as "expected ..., given ..."; empty if it was.
    template <topology Topology>
    std::string place_problem(const Topology& ranks, int rank) const {
        const auto place_text = [](int group, int index, const auto& of) {
            return "rank " + std::to_string(index) + " of group " + std::to_string(group) + " of " +
                   group_sizes_text(of);
        };
        const int group = ranks.group_of(rank), index = ranks.index_of(rank);
        const bool same_places = owners_.digest_of_all() == topology_digest(ranks);
        if (same_places && group_ == group && index_ == index) return {};
        const bool same_sizes = group_sizes_text(owners_.all()) == group_sizes_text(ranks);
        return "expected a secondary replica for " + place_text(group, index, ranks) + ", given one for " +
               place_text(group_, index_, owners_.all()) + (!same_places && same_sizes ? " in other places" : "");
    }
    /// Why `shard` cannot be this rank's shards, as "expected ..., given ..."; empty if it can be.
    template <class Operand>
    std::string shard_problem(const Operand& shard) const {
        if (owns()) return base::shard_problem(shard, owner(), "replica");
        if (std::string problem = base::kind_problem(shard); !problem.empty() || shard.elements() == 0) return problem;
        return "expected an empty shard, since this rank's group owns no shards, given one of " +
               std::to_string(shard.elements()) + " elements";
    }

private:
    template <topology Topology>
    static std::size_t kept_by(const Topology& ranks, int rank) {
        detail::existing_rank("secondary_replica", detail::owners_of(ranks).all().size(), rank);
        return static_cast<std::size_t>(served_by(ranks, rank).size() * ranks.groups());
    }
    int rank() const { return owners_.all().rank_of(group_, index_); }
    static element_type* elements_at(std::byte* message) { return reinterpret_cast<element_type*>(message); }
    element_type* own_elements() const { return elements_at(own_message(base::message(), base::message_bytes())); }

    shard_owners owners_;
    int group_;
    int index_;
};

}  // namespace zeropp
