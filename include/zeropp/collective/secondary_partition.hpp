#pragma once
/// \file
/// hpZ's storage: a rank's secondary shard of tensors that its group holds whole.

#include <zeropp/codec/codec.hpp>
#include <zeropp/core/error.hpp>
#include <zeropp/core/text.hpp>
#include <zeropp/core/view.hpp>
#include <zeropp/core/workspace.hpp>
#include <zeropp/execution/execution.hpp>
#include <zeropp/layout/divided.hpp>
#include <zeropp/layout/tensor_list.hpp>
#include <zeropp/layout/wire_layout.hpp>
#include <zeropp/quantizer/quantizer.hpp>
#include <zeropp/topology/columns.hpp>
#include <zeropp/topology/topology.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace zeropp {

namespace detail {
/// Identifies tensors: number of elements, and the text of a list.
struct tensors_identity {
    std::size_t elements;
    short_text list;

    template <class Division>
    explicit tensors_identity(const Division& d) : elements(d.elements()), list(d.text()) {}

    std::string text() const {
        return (list == short_text() ? "a tensor" : list.str()) + " of " + std::to_string(elements) + " elements";
    }
    std::string text_beside(const tensors_identity& other) const {
        return list == other.list ? "one of " + std::to_string(elements) : text();
    }
    /// Why `given` are other tensors, as "expected ..., given ..."; empty if they are not.
    std::string problem(const tensors_identity& given) const {
        return given == *this ? std::string() : "expected " + text() + ", given " + given.text_beside(*this);
    }
    friend bool operator==(const tensors_identity&, const tensors_identity&) = default;
};
}  // namespace detail

/// This rank's secondary shard, 1/k of a tensor or of each tensor of a list in a group of k ranks. Kept as a message of
/// `Quantizer`, ready to be gathered: `cast_to` for exact weights, or a block quantizer to save memory and bytes.
/// Refers to the caller's storage, of `storage_bytes(...)`, for as long as it is used.
///
/// Stored weights have a version, any number that changes whenever the weights do (the training step). To gather
/// another version is an error: stale weights never train a model in silence.
template <quantizer Quantizer, class Space>
class secondary_partition {
public:
    using quantizer_type = Quantizer;
    using space = Space;

    /// For `tensors`, an element count or a tensor_list of whole tensors, in a group of `group_size` ranks, as rank
    /// `index`. Throws precondition_error unless the group has such a rank, a list is over such groups, and `storage`
    /// is large enough and aligned to 16 bytes.
    template <mutable_array_in<Space> Storage>
    secondary_partition(const Quantizer& q, const tensors_shape& tensors, int group_size, int index, Storage&& storage)
        : quantizer_(q),
          of_(detail::over_group(group_size, tensors, [](const auto& d) { return detail::tensors_identity(d); })),
          group_size_(group_size), index_(detail::existing_rank("secondary_partition", group_size, index)),
          storage_(as_view<Space>(storage)) {
        std::string problem = tensors.group_problem(group_size);
        if (problem.empty()) problem = workspace_problem(storage_, storage_bytes(q, tensors, group_size));
        if (!problem.empty()) throw precondition_error("secondary_partition: " + problem);
    }

    /// Bytes of storage for `tensors` over a group of `group_size` ranks.
    static std::size_t storage_bytes(const Quantizer&, const tensors_shape& tensors, int group_size) {
        return detail::over_group(group_size, tensors,
                                  [](const auto& whole) { return detail::wire_bytes_of<Quantizer>(whole); });
    }

    /// Keeps this rank's part of `full`, stamped with `version`. Enqueued on `exec`; no communication. Throws
    /// precondition_error unless full has the tensor's size, or is a list of the same division, without gaps. If `exec`
    /// fails later, before or in this work, the storage does not match the stamp: `invalidate`, or `restore`.
    template <execution Execution, tensors_in<Space> Full>
    void store(const Execution& exec, Full&& full, std::uint64_t version) {
        const auto from = detail::operand_of<Space>(full);
        const std::string problem = tensors_problem(from);
        if (!problem.empty()) throw precondition_error("secondary_partition: " + problem);
        const auto whole = from.over_group(group_size_);
        if (whole.elements() != 0) {
            const auto slices = typename decltype(whole)::chunks(whole, 1, Quantizer::block_size)[0];
            codec<Execution>::write(exec, detail::in_phase(quantizer_, noise_phase::copy), from.tensor(),
                                    slices.in_slots({}, index_, 1), storage_.data());
        }
        version_ = version;
    }

    /// Forgets the stored version: gathering is an error until the next `store`.
    void invalidate() { version_.reset(); }
    /// Stamps the storage with the version that it still holds, after a `store` that has not run: work that fails skips
    /// the rest of a host_queue.
    void restore(std::optional<std::uint64_t> version) { version_ = version; }

    /// The quantizer of the stored message.
    const Quantizer& stored_as() const { return quantizer_; }
    /// Elements of all tensors.
    std::size_t elements() const { return of_.elements; }
    /// Number of ranks in the group, and this rank's index.
    int group_size() const { return group_size_; }
    int index() const { return index_; }
    /// Version of the stored message; none before the first `store` and after `invalidate`.
    std::optional<std::uint64_t> version() const { return version_; }

    /// For collectives: this rank's message, the division of whole tensors into the group's messages, the number of
    /// these and their order. A group moves all of them in one round.
    template <class Execution, class Operand, class Slices>
    const std::byte* messages(const Execution&, const Operand&, const Slices&, bool, int, std::byte*) const {
        return storage_.data();
    }
    column_rounds rounds() const { return {group_size_, group_size_}; }
    template <class Operand>
    auto division_of(const Operand& full) const {
        return full.over_group(group_size_);
    }
    int slots() const { return group_size_; }
    static slice_order order() { return {}; }
    /// For collectives: text that ranks agree on besides tensors and version.
    static short_text text() { return {}; }
    /// Why the partition is not of `rank` of `ranks`, as "expected ..., given ..."; empty if it is.
    template <topology Topology>
    std::string place_problem(const Topology& ranks, int rank) const {
        const int size = ranks.group_size(ranks.group_of(rank)), index = ranks.index_of(rank);
        if (group_size_ == size && index_ == index) return {};
        return "expected a secondary partition for rank " + std::to_string(index) + " of a group of " +
               std::to_string(size) + ", given one for rank " + std::to_string(index_) + " of " +
               std::to_string(group_size_);
    }

    /// For collectives: memory of the stored message, and why tensors of this shape are not the partition's, as
    /// "expected ..., given ..."; empty if they are.
    view<const std::byte, Space> storage() const { return storage_; }
    std::string shape_problem(const tensors_shape& tensors) const {
        if (std::string problem = tensors.group_problem(group_size_); !problem.empty()) return problem;
        return detail::over_group(group_size_, tensors,
                                  [&](const auto& d) { return of_.problem(detail::tensors_identity(d)); });
    }
    /// For collectives: why tensors do not fit this partition, as "expected ..., given ..."; empty if they do.
    template <class Operand>
    std::string tensors_problem(const Operand& tensors) const {
        if (tensors.has_gaps()) return "expected tensors without gaps between shards, given a list with gaps";
        if (std::string problem = tensors.shape().group_problem(group_size_); !problem.empty()) return problem;
        return of_.problem(detail::tensors_identity(tensors.over_group(group_size_)));
    }

private:
    Quantizer quantizer_;
    detail::tensors_identity of_;
    int group_size_;
    int index_;
    view<std::byte, Space> storage_;
    std::optional<std::uint64_t> version_;
};

namespace detail {
/// A secondary_partition, a secondary_replica or a shard_mirror in `Space`.
template <class S, class Space>
concept copies_in = std::same_as<typename S::space, Space> && quantizer<typename S::quantizer_type>;
/// A secondary_partition or a secondary_replica in `Space`: a group's ranks gather whole tensors from theirs.
template <class S, class Space>
concept secondary_in = copies_in<S, Space> && requires(const S& secondary) { secondary.slots(); };
}  // namespace detail

}  // namespace zeropp
