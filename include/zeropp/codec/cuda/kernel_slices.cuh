#pragma once
/// \file
/// Slices among a kernel's arguments.

#include <zeropp/layout/slices.hpp>

namespace zeropp::detail {

/// Most slots of a launch whose order of ranks is a table.
inline constexpr int most_tabled_slots = 64;

/// Slices with the rank of each slot if their order is a table: it is in host memory, which kernels cannot read.
template <class Slices>
struct kernel_slices : Slices {
    int ranks[most_tabled_slots];

    /// `where` has at most most_tabled_slots slots if its order is a table.
    explicit kernel_slices(const Slices& where) : Slices(where), ranks{} {
        if (where.order.table == nullptr) return;
        for (int s = 0; s != where.slots; ++s) ranks[s] = where.rank(s);
    }

    /// The same slices for use in slot s alone, of which they need no table.
    __device__ Slices in_slot(int s) const {
        Slices slot = *this;
        if (slot.order.table != nullptr) {
            slot.order = {};  // a slot's number is its rank
            slot.first_slot = ranks[s] - s;
        }
        return slot;
    }
};

}  // namespace zeropp::detail
