#pragma once
/// \file
/// Layout of a message of changed elements: [number in each group][elements][places in their groups].

#include <zeropp/core/math.hpp>

#include <cstddef>
#include <cstdint>

namespace zeropp {

/// A message of the changed elements of a shard, in groups of 256 that begin where blocks of 256 would. Parts: the
/// number of changes in each group; the changed elements, in order; the index of each in its group, one byte. Each part
/// begins at a multiple of 16 bytes; gaps are zero.
struct changes_layout {
    static constexpr std::size_t group_size = 256;
    using count = std::uint16_t;

    std::size_t groups;
    /// Number of changed elements that fit. Offsets and `bytes`, the size of the message, are in bytes.
    std::size_t changes;
    std::size_t elements_offset;
    std::size_t places_offset;
    std::size_t bytes;

    constexpr ZEROPP_HOST_DEVICE changes_layout(std::size_t group_count, std::size_t most, std::size_t element_bytes)
        : groups(group_count), changes(most), elements_offset(round_up(groups * sizeof(count), 16)),
          places_offset(elements_offset + round_up(changes * element_bytes, 16)),
          bytes(places_offset + round_up(changes, 16)) {}
};

/// Number of groups in a message of the elements `of`, which is `slices` or `list_slices`.
template <class Tensors>
constexpr std::size_t change_groups(const Tensors& of) {
    return of.last().blocks(changes_layout::group_size) + ceil_div(of.last_count(), changes_layout::group_size);
}

/// Divides the groups of a message into `count` runs of `length` groups; the last run may be shorter. Codecs that
/// process runs in parallel keep `numbers()` counts for each message: all changes, then the changes before each run.
struct changes_runs {
    /// Upper bound of `count`: more than a GPU executes warps at a time, and few enough for one thread block to sum.
    static constexpr std::size_t most = 16384;

    /// Number of groups in a run, and number of runs.
    std::size_t length;
    std::size_t count;

    explicit constexpr ZEROPP_HOST_DEVICE changes_runs(std::size_t groups)
        : length(groups == 0 ? 1 : ceil_div(groups, most)), count(ceil_div(groups, length)) {}

    constexpr ZEROPP_HOST_DEVICE std::size_t numbers() const { return 1 + count; }
};

}  // namespace zeropp
