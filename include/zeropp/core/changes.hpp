#pragma once
/// \file
/// Where the parts of a message of changed elements lie: [how many in each group][the elements][their places].

#include <zeropp/core/math.hpp>

#include <cstddef>
#include <cstdint>

namespace zeropp {

/// A message of those elements of a slice that have changed, in groups of 256 that begin where blocks of as many would:
/// how many of each group, then all of them, then the place of each in its group, one byte, in the same order. What
/// follows is zeros, up to a multiple of 16 bytes; each part begins at one.
struct changes_layout {
    static constexpr std::size_t group_size = 256;
    using count = std::uint16_t;

    std::size_t groups;
    /// Room for so many.
    std::size_t changes;
    std::size_t elements_offset;
    std::size_t places_offset;
    std::size_t bytes;

    constexpr ZEROPP_HOST_DEVICE changes_layout(std::size_t group_count, std::size_t most, std::size_t element_bytes)
        : groups(group_count), changes(most), elements_offset(round_up(groups * sizeof(count), 16)),
          places_offset(elements_offset + round_up(changes * element_bytes, 16)),
          bytes(places_offset + round_up(changes, 16)) {}
};

/// How many groups messages have, of what says where their last tensor is.
template <class Tensors>
constexpr std::size_t change_groups(const Tensors& of) {
    return of.last().blocks(changes_layout::group_size) + ceil_div(of.last_count(), changes_layout::group_size);
}

/// How the groups of a message are divided among those who go through it side by side: runs of as many groups each, but
/// for the last. So that each knows where in the message its changes begin, codecs pass on numbers, `numbers()` for a
/// message: how many changes it has, and how many of them lie before each run.
struct changes_runs {
    /// More than a GPU has warps at a time, and few enough for one thread block to sum up.
    static constexpr std::size_t most = 16384;

    /// Groups of a run.
    std::size_t length;
    std::size_t count;

    explicit constexpr ZEROPP_HOST_DEVICE changes_runs(std::size_t groups)
        : length(groups == 0 ? 1 : ceil_div(groups, most)), count(ceil_div(groups, length)) {}

    constexpr ZEROPP_HOST_DEVICE std::size_t numbers() const { return 1 + count; }
};

}  // namespace zeropp
