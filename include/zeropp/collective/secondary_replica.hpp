#pragma once
/// \file
/// hpZ's storage as what differences refer to: weights that a node keeps whole, and that updates move on.

#include <zeropp/collective/divided.hpp>
#include <zeropp/core/error.hpp>
#include <zeropp/core/view.hpp>
#include <zeropp/core/workspace.hpp>
#include <zeropp/quantizer/quantizer.hpp>
#include <zeropp/quantizer/wire_layout.hpp>
#include <zeropp/topology/partition.hpp>
#include <zeropp/topology/slices.hpp>
#include <zeropp/topology/topology.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace zeropp {

/// This rank's part of a tensor that its group holds whole, in the elements T of `Exact`, a lossless<T>: the slices of the
/// ranks of its index in all groups, which are what reaches it when the all-gather crosses groups. `quantized_update`
/// brings it up to date, moving differences; `secondary_partition_gather` makes the whole tensor of it inside the group.
/// Refers to the caller's storage, of `storage_bytes(...)`: the 1/k of the tensor, k being the ranks of a group, that
/// hpZ takes.
///
/// Stamped with a version, which every update makes larger by one: a rank that has missed one is an error.
template <quantizer Exact, class Space>
class secondary_replica {
public:
    using element_type = typename Exact::element_type;
    using space = Space;
    using quantizer_type = Exact;

    /// For a tensor of so many elements over `ranks`, of which this is `rank`; empty. Throws precondition_error unless
    /// `storage` is large enough and aligned to 16 bytes.
    template <topology Topology, mutable_array_in<Space> Storage>
    secondary_replica(const Topology& ranks, int rank, std::size_t elements, Storage&& storage)
        : whole_(elements, ranks.size()), groups_(ranks.groups()), group_size_(ranks.group_size()),
          group_(ranks.group_of(rank)), index_(ranks.index_of(rank)), storage_(as_view<Space>(storage)) {
        const std::string problem = workspace_problem(storage_, storage_bytes(ranks, elements));
        if (!problem.empty()) throw precondition_error("secondary_replica: " + problem);
    }

    template <topology Topology>
    static std::size_t storage_bytes(const Topology& ranks, std::size_t elements) {
        return static_cast<std::size_t>(ranks.groups()) *
               wire_bytes(quantizer_type{}, partition(elements, ranks.size()).slice_size());
    }

    /// Forgets what is stored: the next update moves whole weights. On all ranks alike.
    void invalidate() { version_.reset(); }

    quantizer_type stored_as() const { return {}; }
    std::size_t elements() const { return whole_.elements(); }
    int group_size() const { return group_size_; }
    int index() const { return index_; }
    std::optional<std::uint64_t> version() const { return version_; }

    // For collectives.

    /// The messages to gather inside the group, one for each group, in slot order.
    const std::byte* message() const { return storage_.data(); }
    std::byte* message(int group) const { return storage_.data() + static_cast<std::size_t>(group) * slot_bytes(); }
    std::size_t slot_bytes() const { return wire_bytes(quantizer_type{}, whole_.last_count()); }
    int group() const { return group_; }
    int groups() const { return groups_; }
    void stamp(std::uint64_t version) { version_ = version; }

    /// The stored slices as a tensor, and where in it they are.
    element_type* tensor() const { return reinterpret_cast<element_type*>(storage_.data()); }
    element_type* own() const { return reinterpret_cast<element_type*>(message(group_)); }
    slices stored() const {
        const partition slots(static_cast<std::size_t>(groups_) * (slot_bytes() / sizeof(element_type)), groups_);
        return {slots, {}, 0, whole_.last_count(), 0, groups_};
    }

    /// As secondary_partition has them.
    template <class Operand, topology Topology>
    static auto division_of(const Operand& full, const Topology& ranks) {
        return full.over_ranks(ranks);
    }
    template <topology Topology>
    static slice_order order(const Topology& ranks) {
        return ranks.order();
    }
    int slots() const { return groups_ * group_size_; }
    template <topology Topology>
    static int slots_over(const Topology& ranks) {
        return ranks.size();
    }
    view<std::byte, Space> storage() const { return storage_; }
    template <class U>
    std::string tensors_problem(const detail::array_operand<U, Space>& full) const {
        if (full.array.size() == elements()) return {};
        return "expected a tensor of " + std::to_string(elements()) + " elements, given one of " +
               std::to_string(full.array.size());
    }

private:
    detail::tensor_division whole_;
    int groups_;
    int group_size_;
    int group_;
    int index_;
    view<std::byte, Space> storage_;
    std::optional<std::uint64_t> version_;
};

}  // namespace zeropp
