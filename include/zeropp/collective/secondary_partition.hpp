#pragma once
/// \file
/// hpZ's storage: a rank's secondary shard of tensors that the rank's group holds whole.

#include <zeropp/codec/codec.hpp>
#include <zeropp/collective/kept_messages.hpp>
#include <zeropp/core/error.hpp>
#include <zeropp/core/text.hpp>
#include <zeropp/core/view.hpp>
#include <zeropp/execution/execution.hpp>
#include <zeropp/layout/operands.hpp>
#include <zeropp/layout/wire_format.hpp>
#include <zeropp/quantizer/quantizer.hpp>
#include <zeropp/topology/topology.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace zeropp {

/// This rank's secondary shard, 1/k of a tensor or of each tensor of a list in a group of k ranks. Kept as a message of
/// `Quantizer`, ready to be gathered: `cast_to` for exact weights, or a block quantizer to save memory and bytes.
/// Refers to the caller's storage of `storage_bytes(...)`, for as long as the partition is used.
///
/// Stored weights have a version, any number that changes whenever the weights do (the training step). To gather with
/// another version is an error: stale weights never train a model in silence.
template <quantizer Quantizer, class Space>
class secondary_partition : public kept_messages<Quantizer, Space> {
    using base = kept_messages<Quantizer, Space>;

public:
    /// An empty partition for `tensors`, an element count or a tensor_list of whole tensors, on rank `index` of a group
    /// of `group_size` ranks. Throws precondition_error unless the group has such a rank, and a list is over groups of
    /// this size. Also throws unless `storage` is large enough and aligned to 16 bytes.
    template <mutable_array_in<Space> Storage>
    secondary_partition(const Quantizer& q, const tensors_shape& tensors, int group_size, int index, Storage&& storage)
        : base("secondary_partition", q, tensors, group(group_size, index), 1, storage), index_(index) {}

    /// Bytes of storage for `tensors`, an element count or a tensor_list of whole tensors, over a group of `group_size`
    /// ranks.
    static std::size_t storage_bytes(const Quantizer&, const tensors_shape& tensors, int group_size) {
        return base::bytes_of(tensors, {group_size, true});
    }

    /// Keeps this rank's part of `full`, a whole tensor or a tensor_list of whole tensors, stamped with `version`.
    /// Enqueued on `exec`; no communication. Throws precondition_error unless full has the tensor's size, or is a list
    /// of the same division, without gaps. If `exec` fails later, before or in this work, the storage does not match
    /// its version: call `invalidate`, or `restore` if this work was dropped.
    template <execution Execution, tensors_in<Space> Full>
    void store(const Execution& exec, Full&& full, std::uint64_t version) {
        const auto from = detail::operand_of<Space>(full);
        const std::string problem = base::tensors_problem(from);
        if (!problem.empty()) throw precondition_error("secondary_partition: " + problem);
        const auto whole = from.divided(base::over());
        if (whole.elements() != 0) {
            const auto slices = typename decltype(whole)::chunks(whole, 1, Quantizer::block_size)[0];
            codec<Execution>::write(exec, detail::in_phase(base::stored_as(), noise_phase::copy), from.tensor(),
                                    slices.in_slots({}, index_, 1), base::message());
        }
        base::stamp(version);
    }

    /// Stamps the storage with the `version` that the storage still has, after a `store` that did not run. A host_queue
    /// does not run work that follows failed work.
    void restore(std::optional<std::uint64_t> version) { base::stamp(version); }

    /// Number of ranks in the group.
    int group_size() const { return base::over().count; }
    /// This rank's index in the group.
    int index() const { return index_; }

    // Members for collectives.

    /// Indices in the group of the ranks that own the stored parts: this rank's alone.
    std::vector<int> kept_owners() const { return {index_}; }
    /// Number of messages that a group gathers: one of each rank.
    int slots() const { return group_size(); }
    /// Order of the messages that a group gathers: by index.
    static slice_order order() { return {}; }
    /// Text on which ranks agree, besides tensors and version: empty, for a partition.
    static short_text text() { return {}; }
    /// Gathers the messages of the group's ranks, each for the elements `all`. Returns their address: `work`, or the
    /// storage if the group has one rank.
    template <execution Execution, class Communicator, class Slices>
    const std::byte* gather(const Execution& exec, Communicator& comm, const Slices& all, bool, std::byte* work) const {
        if (group_size() == 1) return base::message();
        comm.peers(0).all_gather(exec, base::message(), work, format_of<Quantizer>.bytes_of(all));
        return work;
    }
    /// Why this partition was not made for `rank` of the topology `ranks`, as "expected ..., given ..."; empty if it
    /// was.
    template <topology Topology>
    std::string place_problem(const Topology& ranks, int rank) const {
        const int size = ranks.group_size(ranks.group_of(rank)), index = ranks.index_of(rank);
        if (group_size() == size && index_ == index) return {};
        return "expected a secondary partition for rank " + std::to_string(index) + " of a group of " +
               std::to_string(size) + ", given one for rank " + std::to_string(index_) + " of " +
               std::to_string(group_size());
    }

private:
    /// The ranks of a group of `size` ranks. Throws precondition_error unless `index` is from 0 to `size` - 1. The base
    /// class refuses a `size` below 1.
    static sharing_ranks group(int size, int index) {
        if (size > 0) detail::existing_rank("secondary_partition", size, index);
        return {size, true};
    }

    int index_;
};

}  // namespace zeropp
