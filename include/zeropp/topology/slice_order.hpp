#pragma once
/// \file
/// Order of the shards in a message buffer.

#include <zeropp/core/math.hpp>

#include <cstddef>

namespace zeropp {

/// Ranks in the order of slots: slot = index * groups + group. So messages to one rank of a node, for it and its
/// counterparts on other nodes, are contiguous (ZeRO++'s slice reordering). Strides describe regular ranks; for others,
/// this refers to the topology's table. Default-constructed, slots are ranks: the order of a single group.
struct slice_order {
    int groups = 1;
    int group_stride = 1;
    int index_stride = 1;
    /// Rank of each slot; nullptr if the strides give it.
    const int* table = nullptr;

    constexpr ZEROPP_HOST_DEVICE int rank(int slot) const {
        return table ? table[slot] : slot % groups * group_stride + slot / groups * index_stride;
    }
};

}  // namespace zeropp
