#pragma once
/// \file
/// A topology of one node.

#include <zeropp/core/error.hpp>
#include <zeropp/topology/topology.hpp>

#include <span>
#include <string>

namespace zeropp {

/// A topology of a single group, which has all ranks. Collectives take one hop.
class flat {
public:
    static constexpr int levels = 1;

    /// Makes a group of `size` ranks. Throws precondition_error unless size > 0.
    explicit flat(int size) : size_(size) {
        if (size < 1) throw precondition_error("flat", "at least 1 rank", std::to_string(size));
    }

    int size() const { return size_; }
    int groups() const { return 1; }
    int group_size(int) const { return size_; }
    int group_of(int) const { return 0; }
    int index_of(int rank) const { return rank; }
    int rank_of(int, int index) const { return index; }
    slice_order order() const { return {}; }
    /// Topology of the ranks `survivors`, in this order, with new numbers from 0. Throws precondition_error if
    /// `survivors` is empty, or has a rank that this topology lacks.
    flat shrink(std::span<const int> survivors) const {
        for (const int rank : survivors) detail::existing_rank("flat", size_, rank);
        return flat(static_cast<int>(survivors.size()));
    }

    flat() : flat(1) {}
    friend bool operator==(const flat&, const flat&) = default;

private:
    int size_;
};

}  // namespace zeropp
