#pragma once
/// \file
/// Tensors and lists divided over ranks and cut into chunks.

#include <zeropp/core/error.hpp>
#include <zeropp/core/text.hpp>
#include <zeropp/layout/chunking.hpp>
#include <zeropp/layout/partition.hpp>
#include <zeropp/layout/slices.hpp>
#include <zeropp/layout/tensor_list.hpp>
#include <zeropp/layout/wire_layout.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace zeropp {

namespace detail {

/// Division of one tensor over ranks, into whole shards.
class tensor_division {
public:
    tensor_division(std::size_t elements, int ranks) : part_(elements, ranks) {}

    std::size_t elements() const { return part_.count(); }
    /// Number of elements of the largest shard. The name is list_division's: in a list, the last tensor decides the
    /// size of messages.
    std::size_t last_count() const { return part_.slice_size(); }
    static message_place last() { return {}; }
    const partition& part() const { return part_; }
    /// Text that must be equal on all ranks, besides the number of elements: empty for one tensor.
    static short_text text() { return {}; }

    /// Division of every shard into at most `wanted` chunks of whole blocks of `block` elements.
    class chunks {
    public:
        chunks(const tensor_division& of, int wanted, std::size_t block)
            : part_(of.part_), cut_(part_.slice_size(), wanted, block) {}
        std::size_t size() const { return cut_.chunks; }
        /// Returns this division, which another tensor of equal size has, too.
        const chunks& of(const tensor_division&) const { return *this; }
        slices operator[](std::size_t c) const { return {part_, {}, c * cut_.chunk, cut_.count(c), 0, 0}; }

    private:
        partition part_;
        chunking cut_;
    };

private:
    partition part_;
};

/// Division of a list's shards into chunks. The shards of all tensors follow one another, and are cut between blocks of
/// `block` elements.
class list_chunks {
public:
    template <class Division>
    list_chunks(const Division& of, int wanted, std::size_t block)
        : segments_(of.segments()), resident_(of.resident()), quantum_(std::max(block, message_place::alignment)),
          cut_(of.last().elements + of.last_count(), wanted, quantum_) {}
    std::size_t size() const { return cut_.chunks; }

    /// This division for another list with tensors of equal sizes.
    template <class Division>
    list_chunks of(const Division& others) const {
        list_chunks chunks = *this;
        chunks.segments_ = others.segments();
        chunks.resident_ = others.resident();
        return chunks;
    }

    list_slices operator[](std::size_t c) const {
        const point from = at(c * cut_.chunk);
        const point to = c + 1 == size() ? point{segments_.size(), 0} : at((c + 1) * cut_.chunk);
        // If the chunk ends where a tensor begins, the chunk's last tensor is the one before.
        const std::size_t last = to.begin == 0 ? to.tensor - 1 : to.tensor;
        const segment& ends = segments_[last];
        return {resident_,
                from.tensor,
                last + 1 - from.tensor,
                from.begin,
                to.begin == 0 ? ends.part.slice_size() : to.begin,
                segments_[from.tensor].place,
                ends.place};
    }

private:
    struct point {
        std::size_t tensor;
        std::size_t begin;
    };

    /// Boundary between two chunks: the first element of the block that contains element `e` of the shards. No two
    /// boundaries are equal, because chunks have whole blocks.
    point at(std::size_t e) const {
        std::size_t tensor = 0;
        for (std::size_t end = segments_.size(); end - tensor > 1;) {
            const std::size_t middle = tensor + (end - tensor) / 2;
            (segments_[middle].place.elements <= e ? tensor : end) = middle;
        }
        return {tensor, (e - segments_[tensor].place.elements) / quantum_ * quantum_};
    }

    std::span<const segment> segments_;
    const segment* resident_;
    std::size_t quantum_;
    chunking cut_;
};

/// Division of a list's tensors over ranks, into whole shards. Refers to the list.
class list_division {
public:
    using chunks = list_chunks;

    list_division(std::span<const segment> segments, const segment* resident, std::size_t elements,
                  std::uint64_t digest)
        : segments_(segments), resident_(resident), elements_(elements), digest_(digest) {}

    std::size_t elements() const { return elements_; }
    std::size_t last_count() const { return segments_.empty() ? 0 : segments_.back().part.slice_size(); }
    message_place last() const { return segments_.empty() ? message_place() : segments_.back().place; }
    /// Division of each tensor, in host memory.
    std::span<const segment> segments() const { return segments_; }
    /// Address of `segments()` in the execution's memory.
    const segment* resident() const { return resident_; }
    std::uint64_t digest() const { return digest_; }
    short_text text() const {
        return short_text("a list of ").append(segments_.size()).append(" tensors with digest ").append(digest_);
    }

private:
    std::span<const segment> segments_;
    const segment* resident_;
    std::size_t elements_;
    std::uint64_t digest_;
};

/// Reason why a list is no list of whole tensors over `ranks` ranks; empty if it is one. `given` is the list's number
/// of ranks, 0 for a list of shards.
[[gnu::cold]] inline std::string list_ranks_problem(int given, int ranks) {
    if (given == ranks) return {};
    return "expected a list of whole tensors over " + std::to_string(ranks) + " ranks, given " +
           (given == 0 ? std::string("a list of shards") : "one over " + std::to_string(given));
}

}  // namespace detail

/// Number of ranks over which whole tensors are divided: all ranks or, if `of_group`, the ranks of a group.
struct sharing_ranks {
    int count;
    bool of_group = false;
};

/// Sizes of the tensors of a call, for functions that return the bytes of workspaces. Converts from an element count or
/// a tensor_list; refers to the list.
class tensors_shape {
public:
    tensors_shape(std::size_t elements) : elements_(elements) {}
    template <class T, class Space>
    tensors_shape(const tensor_list<T, Space>& list)
        : elements_(list.elements()),
          list_(list_shape{list.over_ranks(), list.over_groups(), list.ranks(), list.digest()}) {}

    /// Reason why the tensors cannot be divided over `ranks`, as "expected ..., given ..."; empty if they can.
    std::string problem(const sharing_ranks& ranks) const {
        if (!list_) return {};
        return ranks.of_group ? list_->groups.problem(ranks.count)
                              : detail::list_ranks_problem(list_->ranks, ranks.count);
    }

    /// Returns `f(d)` for the tensors' division `d` over `ranks`: a tensor_division or a list_division. Throws
    /// precondition_error unless `ranks.count` > 0.
    template <class F>
    auto divided(const sharing_ranks& ranks, F f) const {
        if (ranks.count < 1) {
            throw precondition_error("secondary_partition", "a group of at least 1 rank", std::to_string(ranks.count));
        }
        if (!list_) return f(detail::tensor_division(elements_, ranks.count));
        const auto parts = ranks.of_group ? list_->groups.of(ranks.count) : list_->over_ranks;
        return f(detail::list_division(parts, nullptr, elements_,
                                       ranks.of_group ? detail::digest_of(parts) : list_->digest));
    }

private:
    struct list_shape {
        std::span<const segment> over_ranks;
        detail::group_segments groups;
        int ranks;
        std::uint64_t digest;
    };

    std::size_t elements_;
    std::optional<list_shape> list_;  // empty for one tensor
};

}  // namespace zeropp
