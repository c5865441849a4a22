#pragma once
/// \file
/// hpZ's storage: a rank's part of a tensor that its group holds whole.

#include <zeropp/codec/codec.hpp>
#include <zeropp/core/error.hpp>
#include <zeropp/core/view.hpp>
#include <zeropp/core/workspace.hpp>
#include <zeropp/execution/execution.hpp>
#include <zeropp/quantizer/wire_layout.hpp>
#include <zeropp/topology/partition.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace zeropp {

/// This rank's 1/k of a tensor, k being the ranks of its group, kept ready to be gathered as a message of `Quantizer`:
/// `lossless` for exact weights, or a block quantizer to save memory and bytes. Refers to the caller's storage, of
/// `storage_bytes(...)`; costs that memory on each rank for as long as it is used.
///
/// A version, any number that changes whenever the weights do (the training step), is stamped on what is stored, and
/// gathering with another version is an error: stale weights never train a model in silence.
template <quantizer Quantizer, class Space>
class secondary_partition {
public:
    using quantizer_type = Quantizer;

    /// For a tensor of `elements` over a group of `group_size` ranks, of which this rank is `index`. Throws
    /// precondition_error unless `storage` is large enough and aligned to 16 bytes.
    template <mutable_array_in<Space> Storage>
    secondary_partition(const Quantizer& q, std::size_t elements, int group_size, int index, Storage&& storage)
        : quantizer_(q), part_(elements, group_size), index_(index), storage_(as_view<Space>(storage)) {
        const std::string problem = workspace_problem(storage_, storage_bytes(q, elements, group_size));
        if (!problem.empty()) throw precondition_error("secondary_partition: " + problem);
    }

    static std::size_t storage_bytes(const Quantizer& q, std::size_t elements, int group_size) {
        return wire_bytes(q, partition(elements, group_size).slice_size());
    }

    /// Keeps this rank's part of `full` and stamps it with `version`. Enqueued on `exec`; no communication. Throws
    /// precondition_error unless full has the tensor's size. If `exec` fails later, before or in this work, what is stored
    /// is not what the stamp says: `invalidate`.
    template <execution Execution, array_in<Space> Full>
    void store(const Execution& exec, Full&& full, std::uint64_t version) {
        const auto tensor = as_view<Space>(full);
        if (tensor.size() != part_.count()) {
            throw precondition_error("secondary_partition",
                                     "a tensor of " + std::to_string(part_.count()) + " elements",
                                     "one of " + std::to_string(tensor.size()));
        }
        codec<Execution>::encode(exec, quantizer_, tensor.data(),
                                 {part_, slice_order{}, 0, part_.slice_size(), index_, 1}, storage_.data());
        version_ = version;
    }

    /// Forgets what is stored: gathering is an error until the next `store`.
    void invalidate() { version_.reset(); }

    const Quantizer& stored_as() const { return quantizer_; }
    const partition& part() const { return part_; }
    int index() const { return index_; }
    std::optional<std::uint64_t> version() const { return version_; }
    /// The message to gather.
    const std::byte* message() const { return storage_.data(); }

private:
    Quantizer quantizer_;
    partition part_;
    int index_;
    view<std::byte, Space> storage_;
    std::optional<std::uint64_t> version_;
};

}  // namespace zeropp
