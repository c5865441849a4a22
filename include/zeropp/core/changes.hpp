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

}  // namespace zeropp
