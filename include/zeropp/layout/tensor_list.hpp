#pragma once
/// \file
/// Lists of tensors that a collective moves together.

#include <zeropp/core/error.hpp>
#include <zeropp/core/math.hpp>
#include <zeropp/core/view.hpp>
#include <zeropp/core/workspace.hpp>
#include <zeropp/layout/partition.hpp>
#include <zeropp/layout/slices.hpp>
#include <zeropp/layout/wire_layout.hpp>
#include <zeropp/topology/topology.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <numeric>
#include <span>
#include <string>
#include <vector>

namespace zeropp {

namespace detail {
template <class... T>
std::vector<std::byte> joined_bytes(std::span<T>... arrays) {
    static_assert(((alignof(T) == alignof(void*) && sizeof(T) % alignof(void*) == 0) && ...));
    std::vector<std::byte> table((arrays.size_bytes() + ... + 0));
    std::size_t end = 0;
    const auto put = [&](std::span<const std::byte> bytes) {
        if (!bytes.empty()) std::memcpy(table.data() + end, bytes.data(), bytes.size());
        end += bytes.size();
    };
    (put(std::as_bytes(arrays)), ...);
    return table;
}

/// New memory in `Space` with a copy of `table`, which is host memory. Allocates and blocks.
template <class Space>
workspace<Space> resident(std::span<const std::byte> table) {
    workspace<Space> memory(table.size());
    memory.assign(table.data(), table.size());
    return memory;
}

/// New memory in `Space` with a copy of `table`, which is host memory. Allocates from `resource`, in the order of
/// `exec`. Does not block.
template <class Space, class Exec, class Resource>
workspace<Space> resident(std::span<const std::byte> table, const Exec& exec, Resource& resource) {
    workspace<Space> memory(table.size(), exec, resource);
    memory.assign(table.data(), table.size(), exec);
    return memory;
}

/// Hash of a division of tensors: equal for equal divisions, and almost surely different otherwise.
inline std::uint64_t digest_of(std::span<const segment> segments) {
    std::uint64_t digest = 0xcbf29ce484222325;
    for (const segment& s : segments) {
        for (const std::size_t n : {s.part.count(), s.part.slice_size()}) digest = (digest ^ n) * 0x100000001b3;
    }
    return digest;
}

/// Division of a list's tensors over the ranks of a group, for each size of groups.
struct group_segments {
    /// Sizes of groups in ranks, each once, in ascending order; none for a list of shards.
    std::span<const int> sizes;
    /// For each of `sizes`, in order: the division of every tensor over a group of that size.
    std::span<const segment> segments;

    /// Division of each tensor over a group of `size` ranks. Requires an empty `problem(size)`.
    std::span<const segment> of(int size) const {
        if (sizes.empty()) return {};
        const std::size_t tensors = segments.size() / sizes.size();
        const auto place = static_cast<std::size_t>(std::ranges::find(sizes, size) - sizes.begin());
        return segments.subspan(place % sizes.size() * tensors, tensors);
    }
    /// Reason why the list is not over groups of `size` ranks, as "expected ..., given ..."; empty if it is.
    std::string problem(int size) const {
        if (std::ranges::find(sizes, size) != sizes.end()) return {};
        std::string given;
        for (const int s : sizes) given += (given.empty() ? "" : ", ") + std::to_string(s);
        return "expected a list over groups of " + std::to_string(size) + " ranks, given one over groups of " +
               (given.empty() ? "0" : given);
    }
};
}  // namespace detail

/// How one tensor of a list is divided over ranks, and where its shards lie in memory.
struct division {
    /// Number of elements of a row. Shards have whole rows, as in FSDP, which divides along the first dimension.
    std::size_t row = 1;
    /// Number of elements from the start of one shard to the start of the next, if memory has gaps between shards.
    /// DeepSpeed's flat buffers have gaps. 0 without gaps.
    std::size_t stride = 0;
    /// Number of elements of the tensor, gaps excluded. Required if memory has gaps; 0 means the whole array.
    std::size_t elements = 0;
};

/// One tensor of a tensor_list: its array and its division.
template <class T, class Space>
struct list_tensor {
    /// Takes any array in `Space`, and its division `how`: by default, shards without gaps.
    template <array_in<Space> Array>
    list_tensor(Array&& array, const division& how = {}) : memory(as_view<Space>(array)), divided(how) {}

    /// The tensor's array.
    view<T, Space> memory;
    /// How the tensor is divided.
    division divided;
};

/// Tensors of one element type that a collective moves together, in one message for each peer and hop. Each tensor is
/// divided over the ranks by itself, and no block has elements of two tensors. So the results have the bits of one call
/// for each tensor.
///
/// A list replaces an array in a call. It has whole tensors or, in place of a shard, this rank's shards of the whole
/// tensors in their order. Make a list once for all steps. The constructor allocates a table of 104 bytes for each
/// tensor in `Space` (48 more for each further size of groups) and, in device_space, blocks. The list refers to the
/// tensors, and must outlive its work.
///
/// For a list of one call, the constructors take `memory...`: an execution and a resource, such as a cuda_stream and a
/// device_memory_resource. The table is then allocated, written and freed in the order of the execution, without
/// blocking. The list may end before its work does, but the resource must not. CUDA graphs cannot capture such a
/// constructor.
template <class T, class Space = host_space>
class tensor_list {
public:
    using element_type = T;
    using space = Space;

    /// Makes a list of whole tensors, divided over `ranks` and, for secondary partitions, over the ranks of each group.
    /// Throws precondition_error if an array is too small for its division, rows have no element, shards overlap, or
    /// all shards of a rank, each rounded up to 32 elements, have 2^56 / `ranks.size()` elements or more.
    template <topology Topology, class... Memory>
    tensor_list(const Topology& ranks, std::span<const list_tensor<T, Space>> tensors, Memory&... memory)
        : tensors_(tensors.begin(), tensors.end()), ranks_(ranks.size()), memory_(0) {
        segments_ = segments(ranks_);
        for (int g = 0; g != ranks.groups(); ++g) group_sizes_.push_back(ranks.group_size(g));
        std::sort(group_sizes_.begin(), group_sizes_.end());
        group_sizes_.erase(std::unique(group_sizes_.begin(), group_sizes_.end()), group_sizes_.end());
        for (const int size : group_sizes_) {
            const std::vector<segment> of_group = segments(size);
            segments_.insert(segments_.end(), of_group.begin(), of_group.end());
        }
        for (std::size_t t = 0; t != tensors_.size(); ++t) require_room(t);
        digest_ = detail::digest_of(over_ranks());
        make_resident(memory...);
    }
    template <topology Topology>
    tensor_list(const Topology& ranks, std::initializer_list<list_tensor<T, Space>> tensors)
        : tensor_list(ranks, std::span(tensors.begin(), tensors.size())) {}

    /// Makes a list of this rank's shards. Each has this rank's size by `partition`, or is padded to the first rank's
    /// size.
    template <class... Memory>
    explicit tensor_list(std::span<const list_tensor<T, Space>> slices, Memory&... memory)
        : tensors_(slices.begin(), slices.end()), memory_(0) {
        make_resident(memory...);
    }
    explicit tensor_list(std::initializer_list<list_tensor<T, Space>> slices)
        : tensor_list(std::span(slices.begin(), slices.size())) {}

    /// Number of tensors.
    std::size_t size() const { return tensors_.size(); }
    /// The array of tensor t, as given to the constructor.
    view<T, Space> operator[](std::size_t t) const { return tensors_[t].memory; }

    /// Number of ranks over which whole tensors are divided; 0 for a list of shards.
    int ranks() const { return ranks_; }

    /// Number of elements of all tensors.
    std::size_t elements() const { return elements_; }
    /// True if memory has gaps between the shards of a tensor.
    bool has_gaps() const { return has_gaps_; }

    // For collectives.

    /// Division of each whole tensor over all ranks, in host memory.
    std::span<const segment> over_ranks() const { return std::span(segments_).first(ranks_ != 0 ? size() : 0); }
    /// For each size of groups: the division of each whole tensor over the ranks of a group, in host memory.
    detail::group_segments over_groups() const {
        return {group_sizes_, std::span(segments_).subspan(over_ranks().size())};
    }
    /// Address in `Space` of the copy of `some`, segments of this list in host memory.
    const segment* resident(std::span<const segment> some) const {
        return reinterpret_cast<const segment*>(memory_.view().data()) + (some.data() - segments_.data());
    }
    /// Table of the tensors' addresses, in `Space`.
    T* const* resident_tensors() const { return reinterpret_cast<T* const*>(resident(segments_) + segments_.size()); }

    /// Division of each whole tensor over `ranks` ranks, any number above 0. Throws precondition_error if shards are
    /// too large, as the constructor does.
    std::vector<segment> segments(int ranks) const {
        std::vector<segment> all;
        all.reserve(size());
        message_place place;
        // Sizes of messages, of which a call may need several for each rank, must fit a std::size_t.
        std::size_t room = std::numeric_limits<std::size_t>::max() / 256 / static_cast<std::size_t>(ranks);
        for (std::size_t t = 0; t != size(); ++t) {
            const division& how = tensors_[t].divided;
            const partition part(count(t), ranks, how.row == 0 ? 1 : how.row);
            // If the size of a shard has overflowed, its share of the elements alone is too large.
            const std::size_t shard = std::max(part.slice_size(), ceil_div(count(t), static_cast<std::size_t>(ranks)));
            if (shard > room) refuse(t, "in shards of at most " + std::to_string(room) + " elements", shard);
            room -= std::min(room, round_up(shard, message_place::alignment));
            all.push_back({part, how.stride != 0 ? how.stride : part.slice_size(), place});
            place = place.next(part.slice_size());
        }
        return all;
    }

    /// Indices of the tensors, sorted by address.
    std::span<const std::uint32_t> by_address() const { return by_address_; }
    /// Bytes of the longest array.
    std::size_t longest_bytes() const { return longest_bytes_; }
    /// True if two arrays of the list overlap in memory. Gaps between shards count as part of an array.
    bool arrays_overlap() const { return arrays_overlap_; }

    /// Hash of the division of all tensors over all ranks.
    std::uint64_t digest() const { return digest_; }

private:
    std::size_t count(std::size_t t) const {
        const list_tensor<T, Space>& tensor = tensors_[t];
        return tensor.divided.elements != 0 ? tensor.divided.elements : tensor.memory.size();
    }

    /// Throws precondition_error, since tensor t is not as `expected`.
    [[noreturn, gnu::cold]] static void refuse(std::size_t t, const std::string& expected, std::size_t given) {
        throw precondition_error("tensor_list", "tensor " + std::to_string(t) + " " + expected, std::to_string(given));
    }

    void require_room(std::size_t t) const {
        const segment& s = segments_[t];
        if (tensors_[t].divided.row == 0) refuse(t, "in rows of at least 1 element", 0);
        if (s.stride < s.part.slice_size()) {
            refuse(t, "with a stride of at least a shard's " + std::to_string(s.part.slice_size()) + " elements",
                   s.stride);
        }
        if (s.part.count() == 0) return;
        constexpr std::size_t most = std::numeric_limits<std::size_t>::max();
        const std::size_t last = (s.part.count() - 1) / s.part.slice_size();
        const std::size_t size = s.part.size(static_cast<int>(last));
        const bool overflows = last != 0 && s.stride > (most - size) / last;
        const std::size_t end = overflows ? most : last * s.stride + size;
        if (tensors_[t].memory.size() < end) {
            refuse(t, "in an array of at least " + std::to_string(end) + " elements", tensors_[t].memory.size());
        }
    }

    template <class... Memory>
    void make_resident(Memory&... memory) {
        for (std::size_t t = 0; t != size(); ++t) {
            elements_ += count(t);
            has_gaps_ = has_gaps_ || tensors_[t].divided.stride != 0;
            longest_bytes_ = std::max(longest_bytes_, tensors_[t].memory.size_bytes());
        }
        by_address_.resize(size());
        std::iota(by_address_.begin(), by_address_.end(), std::uint32_t{0});
        std::ranges::sort(by_address_, {},
                          [this](std::uint32_t t) { return detail::address_of(tensors_[t].memory.data()); });
        std::uintptr_t end = 0;
        for (const std::uint32_t t : by_address_) {
            const view<T, Space>& array = tensors_[t].memory;
            if (array.size() == 0) continue;
            arrays_overlap_ = arrays_overlap_ || detail::address_of(array.data()) < end;
            end = std::max(end, detail::address_of(array.data() + array.size()));
        }
        std::vector<T*> addresses;
        addresses.reserve(size());
        for (const list_tensor<T, Space>& tensor : tensors_) addresses.push_back(tensor.memory.data());
        memory_ = detail::resident<Space>(detail::joined_bytes(std::span(segments_), std::span(addresses)), memory...);
    }

    std::vector<list_tensor<T, Space>> tensors_;
    int ranks_ = 0;
    std::vector<int> group_sizes_;
    std::size_t elements_ = 0;
    bool has_gaps_ = false;
    std::size_t longest_bytes_ = 0;
    bool arrays_overlap_ = false;
    std::vector<std::uint32_t> by_address_;
    std::uint64_t digest_ = 0;
    std::vector<segment> segments_;  // over all ranks, then over groups of each size in turn
    workspace<Space> memory_;
};

}  // namespace zeropp
