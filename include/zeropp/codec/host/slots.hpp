#pragma once
/// \file
/// Addresses of slots' messages, and the order in which loops visit slots.

#include <zeropp/quantizer/wire_layout.hpp>
#include <zeropp/topology/slices.hpp>

#include <cstddef>

namespace zeropp::detail {

/// Layout of every slot's message.
template <quantizer Q, class Slices>
wire_layout<Q> layout_of(const Slices& where) {
    return wire_layout<Q>(where.last_count(), where.last());
}

/// Message of `slot` in a buffer with messages of `bytes` bytes.
template <class Byte>
Byte* message_at(Byte* messages, int slot, std::size_t bytes) {
    return messages + static_cast<std::size_t>(slot) * bytes;
}

/// Calls f(s) for each slot, node by node. If a node's ranks are consecutive, that is the order of shards in memory:
/// jumping there costs half of the speed.
template <class Slices, class F>
void for_each_slot_in_memory(const Slices& where, const F& f) {
    for (int group = 0; group != where.order.groups; ++group) {
        for (int s = group; s < where.slots; s += where.order.groups) f(s);
    }
}

}  // namespace zeropp::detail
