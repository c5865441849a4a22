#pragma once
/// \file
/// hpZ's storage as the base of differences: weights that a node keeps whole, and that updates bring up to date.

#include <zeropp/codec/codec.hpp>
#include <zeropp/collective/secondary_partition.hpp>
#include <zeropp/core/error.hpp>
#include <zeropp/core/text.hpp>
#include <zeropp/core/view.hpp>
#include <zeropp/core/workspace.hpp>
#include <zeropp/execution/execution.hpp>
#include <zeropp/layout/chunking.hpp>
#include <zeropp/layout/divided.hpp>
#include <zeropp/layout/slices.hpp>
#include <zeropp/layout/tensor_list.hpp>
#include <zeropp/layout/wire_layout.hpp>
#include <zeropp/quantizer/quantizer.hpp>
#include <zeropp/topology/columns.hpp>
#include <zeropp/topology/shard_owners.hpp>
#include <zeropp/topology/topology.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace zeropp {

/// An update of `replica` to `version` by quantized_update. `full` is the operand of tensors to gather after it, or
/// none.
template <class Replica, class Full>
struct [[nodiscard]] replica_update {
    Replica& replica;
    std::uint64_t version;
    Full full;
};

/// This rank's part of a tensor, or of each tensor of a list, that its group holds whole. It consists of the shards of
/// the ranks of its index in all groups, as the inter-node hop of an all-gather brings them. In the elements T of
/// `Exact`, a cast_to<T>. `quantized_update` brings it up to date by differences. `secondary_partition_gather` makes
/// whole tensors of it within the group, in messages of `IntraNode`. Refers to the caller's storage, of
/// `storage_bytes(...)`: as in hpZ, 1/k of the tensors for k ranks in a group.
///
/// If groups differ in size, ranks of smaller groups also keep shards of the indices that only larger groups have: all
/// columns that they serve (column_rounds).
///
/// If only some groups own shards (shard_owners), these are the owners' shards. Ranks of other groups keep the shards
/// of the owners of their index.
///
/// Stamped with a version, which every update raises by one: a rank that has missed one is an error.
template <quantizer Exact, class Space, quantizer IntraNode = Exact>
class secondary_replica {
public:
    using element_type = typename Exact::element_type;
    using space = Space;
    using quantizer_type = IntraNode;

    /// An empty replica for `tensors`, an element count or a tensor_list of whole tensors, over `ranks`, on rank
    /// `rank`. `ranks` is a topology, or the shard_owners of one, of which `rank` need not be one. Allocates 24 bytes
    /// for each rank and, for a list, a table of 64 for each tensor, for which it blocks in device_space. Throws
    /// precondition_error unless `rank` exists, a list is over `ranks`, and `storage` is large enough and aligned to 16
    /// bytes.
    template <topology Topology, mutable_array_in<Space> Storage>
    secondary_replica(const Topology& ranks, int rank, const tensors_shape& tensors, Storage&& storage,
                      const IntraNode& intra_node = {})
        : intra_node_(intra_node),
          of_(detail::over_ranks(ranks, tensors, [](const auto& d) { return detail::tensors_identity(d); })),
          owners_(detail::owners_of(ranks)), topology_(topology_digest(owners_.all())),
          group_(owners_.all().group_of(detail::existing_rank("secondary_replica", owners_.all().size(), rank))),
          index_(owners_.all().index_of(rank)), storage_(as_view<Space>(storage)), table_(0) {
        std::string problem = tensors.ranks_problem(ranks.size());
        if (problem.empty()) problem = workspace_problem(storage_, storage_bytes(ranks, tensors, rank));
        if (!problem.empty()) throw precondition_error("secondary_replica: " + problem);
        detail::over_ranks(ranks, tensors, [&](const auto& whole) { keep(whole); });
    }

    /// Bytes of storage for `tensors` over `ranks`, a topology or shard_owners, on the rank that keeps the most.
    template <topology Topology>
    static std::size_t storage_bytes(const Topology& ranks, const tensors_shape& tensors) {
        return detail::inter_node_slots(ranks) * slot_bytes(ranks, tensors);
    }
    /// Bytes of storage on `rank`: fewer than on others if groups differ in size and its group is large.
    template <topology Topology>
    static std::size_t storage_bytes(const Topology& ranks, const tensors_shape& tensors, int rank) {
        const shard_owners owners = detail::owners_of(ranks);
        const two_level& all = owners.all();
        detail::existing_rank("secondary_replica", all.size(), rank);
        const int columns = rounds_of(all, all.group_of(rank)).served(all.index_of(rank));
        return static_cast<std::size_t>(columns * ranks.groups()) * slot_bytes(ranks, tensors);
    }

    /// For quantized_update: to `version` and, if there is a `full`, gathering whole tensors there.
    replica_update<secondary_replica, none> to(std::uint64_t version) { return {*this, version, {}}; }
    template <mutable_tensors_in<Space> Full>
    auto to(std::uint64_t version, Full&& full) {
        using operand = decltype(detail::operand_of<Space>(full));
        return replica_update<secondary_replica, operand>{*this, version, detail::operand_of<Space>(full)};
    }

    /// Forgets the stored version: the next update moves whole weights. On all ranks alike.
    void invalidate() { version_.reset(); }

    /// The quantizer of messages within the group.
    const IntraNode& stored_as() const { return intra_node_; }
    /// Elements of all tensors.
    std::size_t elements() const { return of_.elements; }
    /// Number of ranks in a group, and this rank's index in its group.
    int group_size() const { return owners_.all().group_size(group_); }
    int index() const { return index_; }
    /// Version of the stored weights; none before the first update and after `invalidate`.
    std::optional<std::uint64_t> version() const { return version_; }

    /// The ranks that own shards, and whether this one does.
    const shard_owners& owners() const { return owners_; }
    bool owns() const { return group_ < owners_.groups(); }
    /// This rank's number among `owners()`: its shards are `partition(n, owners().size()).size(owner())`. Requires
    /// owns().
    int owner() const { return owners_.rank_of(group_, index_); }

    // For collectives. An operand of tensors tells whether they are an array or a list.

    /// The stored shards, one for each round and group that owns some, in slot order: each a message of Exact.
    std::byte* slot(int slot) const { return storage_.data() + static_cast<std::size_t>(slot) * slot_bytes_; }
    std::size_t slot_bytes() const { return slot_bytes_; }
    /// Rounds in which this rank's group keeps and gathers all columns.
    column_rounds rounds() const { return rounds_of(owners_.all(), group_); }
    static Exact exact() { return {}; }
    int group() const { return group_; }
    int groups() const { return owners_.all().groups(); }
    /// Address of this rank's message among the messages of groups that own shards; the first one's, if it has none.
    std::byte* own_message(std::byte* messages, std::size_t bytes) const {
        return messages + static_cast<std::size_t>(owns() ? group_ : 0) * bytes;
    }
    void stamp(std::uint64_t version) { version_ = version; }

    /// Division of the whole tensors over the ranks that own shards.
    template <class U>
    detail::tensor_division whole(const detail::array_operand<U, Space>&) const {
        return {of_.elements, owners_.size()};
    }
    template <class U>
    detail::list_division whole(const detail::list_operand<U, Space>&) const {
        return {segments_, resident_segments(), of_.elements, digest_};
    }
    /// All stored shards, and this rank's own, as the tensor argument of a codec.
    template <class U>
    element_type* tensors(const detail::array_operand<U, Space>&) const {
        return reinterpret_cast<element_type*>(storage_.data());
    }
    template <class U>
    tensor_table<element_type> tensors(const detail::list_operand<U, Space>&) const {
        return {resident_tensors()};
    }
    template <class U>
    element_type* own(const detail::array_operand<U, Space>&) const {
        return reinterpret_cast<element_type*>(own_message(storage_.data(), slot_bytes_));
    }
    template <class U>
    tensor_table<element_type> own(const detail::list_operand<U, Space>&) const {
        return {resident_tensors() + segments_.size()};
    }
    /// The stored slots of a chunk that belong to a round, at their places in the storage.
    template <class Slices>
    packed_slices<Slices> stored(const Slices& chunk, int round) const {
        const int groups = owners_.groups();
        return {chunk.in_slots(owners_.order(), rounds().column(round, index_) * groups, groups),
                slot_bytes_ / sizeof(element_type), round * groups};
    }
    /// Messages of `chunk` to gather within the group in a round, one for each group that owns shards: the storage
    /// itself if `all` is in the chunk and `IntraNode` is Exact, otherwise encoded into `own`.
    template <execution Execution, class Operand, class Slices>
    const std::byte* messages(const Execution& exec, const Operand& full, const Slices& chunk, bool all, int round,
                              std::byte* own) const {
        if constexpr (std::same_as<Exact, IntraNode>) {
            if (all) return slot(round * owners_.groups());
        }
        codec<Execution>::write(exec, detail::in_phase(intra_node_, noise_phase::copy), tensors(full),
                                stored(chunk, round), own);
        return own;
    }

    /// For collectives: division of whole tensors, order and number of messages, text to agree on.
    template <class Operand>
    auto division_of(const Operand& full) const {
        return full.over_ranks(owners_);
    }
    slice_order order() const { return owners_.order(); }
    int slots() const { return slot_count(owners_); }
    short_text text() const {
        if (owners_.groups() == groups()) return {};
        return short_text().append(owners_.groups()).append(" of ").append(groups()).append(" groups own shards");
    }
    /// Why the replica is not of `rank` of `ranks`, as "expected ..., given ..."; empty if it is.
    template <topology Topology>
    std::string place_problem(const Topology& ranks, int rank) const {
        const auto place_text = [](int group, int index, const auto& of) {
            return "rank " + std::to_string(index) + " of group " + std::to_string(group) + " of " +
                   group_sizes_text(of);
        };
        const int group = ranks.group_of(rank), index = ranks.index_of(rank);
        const bool same_places = topology_ == topology_digest(ranks);
        if (same_places && group_ == group && index_ == index) return {};
        return "expected a secondary replica for " + place_text(group, index, ranks) + ", given one for " +
               place_text(group_, index_, owners_.all()) +
               (!same_places && has_same_groups(owners_.all(), ranks) ? " in other places" : "");
    }
    /// Memory of the stored shards, and why tensors of this shape are not the replica's, as "expected ..., given ...";
    /// empty if they are.
    view<const std::byte, Space> storage() const { return storage_; }
    std::string shape_problem(const tensors_shape& tensors) const {
        if (std::string problem = tensors.ranks_problem(owners_.size()); !problem.empty()) return problem;
        return detail::over_ranks(owners_, tensors,
                                  [&](const auto& d) { return of_.problem(detail::tensors_identity(d)); });
    }
    /// Why `full` cannot be the whole tensors, or `shard` this rank's shards, as "expected ..., given ..."; empty if
    /// they can.
    template <class Operand>
    std::string tensors_problem(const Operand& full) const {
        if (std::string problem = full.whole_problem(owners_); !problem.empty()) return problem;
        return of_.problem(detail::tensors_identity(full.over_ranks(owners_)));
    }
    template <class Operand>
    std::string shard_problem(const Operand& shard) const {
        // An empty shard, too, must be a list if the replica is of a list: a list's shards lie elsewhere.
        const auto division = whole(shard);
        if (std::string problem = of_.problem(detail::tensors_identity(division)); !problem.empty()) return problem;
        if (!owns()) {
            if (shard.elements() == 0) return {};
            return "expected an empty shard, since this rank's group owns no shards, given one of " +
                   std::to_string(shard.elements()) + " elements";
        }
        if (shard.overlaps(storage_)) {
            return "expected a shard apart from the replica, given one that overlaps it";
        }
        return shard.shard_problem(division, owner());
    }

private:
    template <topology Topology>
    static std::size_t slot_bytes(const Topology& ranks, const tensors_shape& tensors) {
        return detail::over_ranks(ranks, tensors,
                                  [](const auto& whole) { return detail::wire_bytes_of<Exact>(whole); });
    }
    const segment* resident_segments() const { return reinterpret_cast<const segment*>(table_.view().data()); }
    element_type* const* resident_tensors() const {
        return reinterpret_cast<element_type* const*>(resident_segments() + segments_.size());
    }
    void keep(const detail::tensor_division& whole) { slot_bytes_ = detail::wire_bytes_of<Exact>(whole); }

    /// Makes the table: segments, and addresses of each tensor's stored shards: the first one, and this rank's own.
    void keep(const detail::list_division& whole) {
        slot_bytes_ = detail::wire_bytes_of<Exact>(whole);
        segments_.assign(whole.segments().begin(), whole.segments().end());
        digest_ = whole.digest();
        auto* const first = reinterpret_cast<element_type*>(storage_.data());
        auto* const first_own = reinterpret_cast<element_type*>(own_message(storage_.data(), slot_bytes_));
        std::vector<element_type*> tensors, own;
        for (const segment& s : segments_) {
            tensors.push_back(first + s.place.elements);
            own.push_back(first_own + s.place.elements);
        }
        table_ =
            detail::resident<Space>(detail::joined_bytes(std::span(segments_), std::span(tensors), std::span(own)));
    }

    IntraNode intra_node_;
    detail::tensors_identity of_;
    shard_owners owners_;
    std::uint64_t topology_;
    int group_;
    int index_;
    view<std::byte, Space> storage_;
    std::size_t slot_bytes_ = 0;
    std::vector<segment> segments_;  // of a list
    std::uint64_t digest_ = 0;
    workspace<Space> table_;
    std::optional<std::uint64_t> version_;
};

}  // namespace zeropp
