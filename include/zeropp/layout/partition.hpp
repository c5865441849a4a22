#pragma once
/// \file
/// Division of a tensor over ranks.

#include <zeropp/core/math.hpp>

#include <cstddef>
#include <string>

namespace zeropp {

/// Divides `count` elements over `ranks` ranks in order, as torch.chunk and FSDP do. Each rank owns a shard of
/// ceil(count / ranks) elements; the last ranks may own fewer, or none. `ranks` need not divide `count`.
class partition {
public:
    /// Divides into shards of whole rows of `row` elements, as FSDP does along dimension 0. Requires ranks > 0 and row
    /// > 0.
    constexpr ZEROPP_HOST_DEVICE partition(std::size_t count, int ranks, std::size_t row = 1)
        : count_(count), slice_(ceil_div(ceil_div(count, row), static_cast<std::size_t>(ranks)) * row), ranks_(ranks) {}

    constexpr ZEROPP_HOST_DEVICE std::size_t count() const { return count_; }
    constexpr ZEROPP_HOST_DEVICE int ranks() const { return ranks_; }

    /// Number of elements of the largest shard.
    constexpr ZEROPP_HOST_DEVICE std::size_t slice_size() const { return slice_; }

    /// Offset of the shard of `rank`, in elements.
    constexpr ZEROPP_HOST_DEVICE std::size_t offset(int rank) const {
        const std::size_t begin = static_cast<std::size_t>(rank) * slice_;
        return begin < count_ ? begin : count_;
    }

    /// Number of elements of the shard of `rank`.
    constexpr ZEROPP_HOST_DEVICE std::size_t size(int rank) const { return offset(rank + 1) - offset(rank); }

private:
    std::size_t count_;
    std::size_t slice_;
    int ranks_;
};

/// Reason why `given` elements cannot be the shard of `rank`, as "expected ..., given ..."; empty if they can.
[[gnu::cold]] inline std::string shard_problem(const partition& part, int rank, std::size_t given) {
    if (given == part.size(rank)) return {};
    return "expected a shard of " + std::to_string(part.size(rank)) + " elements of " + std::to_string(part.count()) +
           ", given one of " + std::to_string(given);
}

}  // namespace zeropp
