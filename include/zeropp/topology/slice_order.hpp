#pragma once
/// \file
/// The order in which the slices of a tensor travel.

#include <zeropp/core/math.hpp>

#include <cstddef>

namespace zeropp {

/// The ranks of a topology in the order of a message buffer: slot = index * groups + group, so that what goes to one
/// member of a group, for it and for its counterparts on the other nodes, is contiguous (ZeRO++'s slice reordering).
/// Holds strides where the ranks are regular, and refers to the topology's table where they are not. As default-
/// constructed, slots are ranks: the order of a single group.
struct slice_order {
    int groups = 1;
    int group_stride = 1;
    int index_stride = 1;
    /// The rank of each slot; nullptr where the strides say it.
    const int* table = nullptr;

    constexpr ZEROPP_HOST_DEVICE int rank(int slot) const {
        return table ? table[slot] : slot % groups * group_stride + slot / groups * index_stride;
    }
};

}  // namespace zeropp
