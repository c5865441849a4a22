#pragma once
/// \file
/// Finds out whether lists of tensors share memory.

#include <zeropp/core/view.hpp>
#include <zeropp/layout/tensor_list.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace zeropp::detail {

/// Number of arrays in memory for each tensor of a list: one for each shard if the list has gaps, otherwise 1. A list
/// of one rank's shards has no gaps, whatever stride its tensors state.
template <class T, class Space>
std::size_t parts_in_memory(const tensor_list<T, Space>& list) {
    return list.has_gaps() && list.ranks() != 0 ? static_cast<std::size_t>(list.ranks()) : 1;
}

/// Array r of tensor t of a list.
template <class T, class Space>
view<T, Space> part_in_memory(const tensor_list<T, Space>& list, std::size_t t, std::size_t r) {
    if (list.ranks() == 0) return list[t];
    const segment& s = list.over_ranks()[t];
    if (parts_in_memory(list) == 1) return list[t].subview(0, s.part.count());
    return list[t].subview(r * s.stride, s.part.size(static_cast<int>(r)));
}

/// True if tensor t of one list shares memory with tensor u of another. Gaps do not count.
template <class A, class B>
bool tensors_overlap(const A& a, std::size_t t, const B& b, std::size_t u) {
    if (!overlap(a[t], b[u])) return false;
    const std::size_t parts_of_a = parts_in_memory(a), parts_of_b = parts_in_memory(b);
    for (std::size_t i = 0, j = 0; i != parts_of_a && j != parts_of_b;) {
        const auto first = part_in_memory(a, t, i);
        const auto second = part_in_memory(b, u, j);
        if (overlap(first, second)) return true;
        ++(address_of(first.data() + first.size()) <= address_of(second.data() + second.size()) ? i : j);
    }
    return false;
}

/// True if a tensor t of `list` shares memory with a tensor u of `others` and not allowed(t, u). Costs a bisection per
/// t, and a look at each u that begins up to `longest_bytes` before it.
template <class List, class Others, class Allowed>
bool lists_overlap(const List& list, const Others& others, Allowed allowed) {
    const auto by_address = others.by_address();
    for (std::size_t t = 0; t != list.size(); ++t) {
        if (list[t].size() == 0) continue;
        const std::uintptr_t begin = address_of(list[t].data());
        const std::uintptr_t end = address_of(list[t].data() + list[t].size());
        auto u = std::partition_point(by_address.begin(), by_address.end(),
                                      [&](std::uint32_t v) { return address_of(others[v].data()) < end; });
        while (u != by_address.begin()) {
            --u;
            if (address_of(others[*u].data()) + others.longest_bytes() <= begin) break;
            if (!allowed(t, *u) && tensors_overlap(list, t, others, *u)) return true;
        }
    }
    return false;
}

}  // namespace zeropp::detail
