#pragma once
/// \file
/// The order in which the slices of a tensor travel.

#include <zeropp/topology/partition.hpp>

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

/// Which elements of a tensor each of a run of consecutive slots carries: elements [begin, begin + count) of the slice of
/// the slot's rank, as far as that slice reaches.
struct slices {
    partition part;
    slice_order order;
    std::size_t begin;
    std::size_t count;
    int first_slot;
    int slots;
    /// The index of the tensor's first element in the tensor that all ranks know, where this one is only a part of it.
    std::size_t origin = 0;

    /// One slot that carries elements [begin, begin + count) of a tensor of `size` elements.
    static constexpr ZEROPP_HOST_DEVICE slices single(std::size_t size, std::size_t begin, std::size_t count,
                                                      std::size_t origin = 0) {
        return {partition(size, 1), slice_order{}, begin, count, 0, 1, origin};
    }

    /// Where in the tensor the elements of the s-th slot of the run begin.
    constexpr ZEROPP_HOST_DEVICE std::size_t offset(int s) const {
        return part.offset(order.rank(first_slot + s)) + begin;
    }

    /// The same in the tensor that all ranks know.
    constexpr ZEROPP_HOST_DEVICE std::size_t index(int s) const { return origin + offset(s); }

    /// How many there are: `count`, or fewer where the slice ends, or none.
    constexpr ZEROPP_HOST_DEVICE std::size_t size(int s) const {
        const std::size_t n = part.size(order.rank(first_slot + s));
        return n <= begin ? 0 : n - begin < count ? n - begin : count;
    }
};

}  // namespace zeropp
