#pragma once
/// \file
/// The elements of a tensor that differ from another's, by their bits, as messages.

#include <zeropp/codec/codec.hpp>
#include <zeropp/core/changes.hpp>
#include <zeropp/topology/slices.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace zeropp::detail {

/// each(number of the group, where it begins in memory, how many elements it has, tensor) for the groups of slot s.
template <class Tensor, class Slices, class Each>
void for_each_group(const Tensor& tensors, const Slices& where, int s, Each each) {
    constexpr std::size_t size = changes_layout::group_size;
    for (std::size_t i = 0; i != where.sections(); ++i) {
        const section of = where.at(i);
        const std::size_t elements = of.size(where.rank(s));
        for (std::size_t begin = 0; begin < elements; begin += size) {
            each(of.place.blocks(size) + begin / size, of.offset(where.in_memory(s)) + begin,
                 std::min(size, elements - begin), tensor_at(tensors, where.tensor(i)));
        }
    }
}

template <class T>
bool differs(const T& a, const T& b) {
    return std::memcmp(&a, &b, sizeof(T)) != 0;
}

template <class Tensor, class Base, class Slices>
void count_changes_of(const difference<Tensor, Base>& d, const Slices& where, std::uint64_t* changes) {
    std::uint64_t count = 0;
    for_each_group(d, where, 0, [&](std::size_t, std::size_t offset, std::size_t n, const auto& of) {
        std::size_t of_group = 0;
        for (std::size_t i = offset; i != offset + n; ++i) of_group += differs(of.tensor[i], of.base[i]) ? 1u : 0u;
        count += of_group;
    });
    *changes = count;
}

template <class Tensor, class Base, class Slices>
void encode_changes_of(const difference<Tensor, Base>& d, const Slices& where, const changes_layout& layout,
                       std::byte* message) {
    std::fill_n(message, layout.bytes, std::byte{0});
    std::size_t changes = 0;
    for_each_group(d, where, 0, [&](std::size_t group, std::size_t offset, std::size_t n, const auto& of) {
        changes_layout::count of_group = 0;
        for (std::size_t i = 0; i != n && changes != layout.changes; ++i) {
            const auto& element = of.tensor[offset + i];
            if (!differs(element, of.base[offset + i])) continue;
            std::memcpy(message + layout.elements_offset + changes * sizeof element, &element, sizeof element);
            message[layout.places_offset + changes] = static_cast<std::byte>(i);
            ++changes;
            ++of_group;
        }
        std::memcpy(message + group * sizeof of_group, &of_group, sizeof of_group);
    });
}

template <class Tensor, class Slices>
void decode_changes_of(const std::byte* messages, const changes_layout& layout, const Slices& where, Tensor tensor) {
    for (int s = 0; s != where.slots; ++s) {
        const std::byte* const message = messages + static_cast<std::size_t>(s) * layout.bytes;
        std::size_t changes = 0;
        for_each_group(tensor, where, s, [&](std::size_t group, std::size_t offset, std::size_t n, auto* to) {
            changes_layout::count of_group;
            std::memcpy(&of_group, message + group * sizeof of_group, sizeof of_group);
            for (; of_group != 0 && changes != layout.changes; --of_group, ++changes) {
                const auto place = static_cast<std::size_t>(message[layout.places_offset + changes]);
                // Whatever arrives, nothing is written outside the group.
                if (place >= n) continue;
                std::memcpy(to + offset + place, message + layout.elements_offset + changes * sizeof *to, sizeof *to);
            }
        });
    }
}

}  // namespace zeropp::detail
