#pragma once
/// \file
/// How a tensor is divided over ranks.

#include <zeropp/core/math.hpp>

#include <cstddef>
#include <string>

namespace zeropp {

/// Divides `count` elements over `ranks` ranks in order: every rank holds ceil(count / ranks) elements, but for the
/// last ones, which hold what is left, possibly nothing. The division that torch.chunk and FSDP use; nothing has to
/// divide.
class partition {
public:
    /// In slices of whole rows of `row` elements, as FSDP divides a tensor along its first dimension. Requires ranks >
    /// 0 and row > 0.
    constexpr ZEROPP_HOST_DEVICE partition(std::size_t count, int ranks, std::size_t row = 1)
        : count_(count), slice_(ceil_div(ceil_div(count, row), static_cast<std::size_t>(ranks)) * row), ranks_(ranks) {}

    constexpr ZEROPP_HOST_DEVICE std::size_t count() const { return count_; }
    constexpr ZEROPP_HOST_DEVICE int ranks() const { return ranks_; }

    /// The largest slice, in elements.
    constexpr ZEROPP_HOST_DEVICE std::size_t slice_size() const { return slice_; }

    /// Where the slice of `rank` begins.
    constexpr ZEROPP_HOST_DEVICE std::size_t offset(int rank) const {
        const std::size_t begin = static_cast<std::size_t>(rank) * slice_;
        return begin < count_ ? begin : count_;
    }

    /// The elements of the slice of `rank`.
    constexpr ZEROPP_HOST_DEVICE std::size_t size(int rank) const { return offset(rank + 1) - offset(rank); }

private:
    std::size_t count_;
    std::size_t slice_;
    int ranks_;
};

/// Why `given` elements cannot be the slice of `rank`, as "expected ..., given ..."; empty when they can.
[[gnu::cold]] inline std::string shard_problem(const partition& part, int rank, std::size_t given) {
    if (given == part.size(rank)) return {};
    return "expected a shard of " + std::to_string(part.size(rank)) + " elements of " + std::to_string(part.count()) +
           ", given one of " + std::to_string(given);
}

}  // namespace zeropp
