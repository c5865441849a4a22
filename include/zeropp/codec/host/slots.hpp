#pragma once
/// \file
/// Where the messages of slots lie, and in which order they are best gone through.

#include <zeropp/quantizer/wire_layout.hpp>
#include <zeropp/topology/slices.hpp>

#include <cstddef>

namespace zeropp::detail {

/// The layout of every slot's message.
template <quantizer Q, class Slices>
wire_layout<Q> layout_of(const Slices& where) {
    return wire_layout<Q>(where.last_count(), where.last());
}

/// The message of a slot.
template <class Byte>
Byte* message_at(Byte* messages, int slot, std::size_t bytes) {
    return messages + static_cast<std::size_t>(slot) * bytes;
}

/// Calls f(s) for each slot of a run in the order in which slices lie in memory, where the ranks of a group follow each
/// other: to jump there costs half of the speed.
template <class Slices, class F>
void for_each_slot_in_memory(const Slices& where, const F& f) {
    for (int group = 0; group != where.order.groups; ++group) {
        for (int s = group; s < where.slots; s += where.order.groups) f(s);
    }
}

}  // namespace zeropp::detail
