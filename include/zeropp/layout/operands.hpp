#pragma once
/// \file
/// Arrays and lists as the tensors of a collective, and their overlaps in memory.

#include <zeropp/core/view.hpp>
#include <zeropp/layout/divided.hpp>
#include <zeropp/layout/partition.hpp>
#include <zeropp/layout/slices.hpp>
#include <zeropp/layout/tensor_list.hpp>
#include <zeropp/topology/topology.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

namespace zeropp {

namespace detail {
template <class R>
inline constexpr bool is_tensor_list = false;
template <class T, class Space>
inline constexpr bool is_tensor_list<tensor_list<T, Space>> = true;

template <class R, class Space>
concept list_in = is_tensor_list<std::remove_cvref_t<R>> && std::same_as<typename std::remove_cvref_t<R>::space, Space>;
}  // namespace detail

/// A tensor argument of a collective: an array or a tensor_list, with its elements in the memory `Space`.
template <class R, class Space>
concept tensors_in = array_in<R, Space> || detail::list_in<R, Space>;

/// A tensor argument that a collective writes: an array or a tensor_list of elements that are not const, in the memory
/// `Space`.
template <class R, class Space>
concept mutable_tensors_in =
    mutable_array_in<R, Space> ||
    (detail::list_in<R, Space> && !std::is_const_v<typename std::remove_cvref_t<R>::element_type>);

namespace detail {

/// Number of arrays without gaps in which each tensor of a list lies: one for each shard if the list has gaps,
/// otherwise 1. A list of one rank's shards has no gaps, whatever stride its tensors state.
template <class T, class Space>
std::size_t parts_in_memory(const tensor_list<T, Space>& list) {
    return list.has_gaps() && list.ranks() != 0 ? static_cast<std::size_t>(list.ranks()) : 1;
}

/// View of the r-th of the arrays without gaps in which tensor t of a list lies.
template <class T, class Space>
view<T, Space> part_in_memory(const tensor_list<T, Space>& list, std::size_t t, std::size_t r) {
    if (list.ranks() == 0) return list[t];
    const segment& s = list.over_ranks()[t];
    if (parts_in_memory(list) == 1) return list[t].subview(0, s.part.count());
    return list[t].subview(r * s.stride, s.part.size(static_cast<int>(r)));
}

/// True if tensor t of list a shares memory with tensor u of list b. Gaps do not count.
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

/// True if a tensor t of `list` shares memory with a tensor u of `others`, unless allowed(t, u). Costs a bisection for
/// each t, and a look at each u near t. Such a u begins before the end of t, and less than the longest array of
/// `others` before the begin of t.
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

/// True if `part` overlaps `full` and does not begin at element `offset` of `full`.
template <class Full, class Part>
bool overlaps_but_at(const Full& full, std::size_t offset, const Part& part) {
    return overlap(full, part) && static_cast<const void*>(part.data()) != full.data() + offset;
}

/// An array as a tensor argument of a collective.
template <class T, class Space>
struct array_operand {
    using element_type = std::remove_const_t<T>;
    static constexpr bool is_list = false;

    view<T, Space> array;

    /// Number of tensors: 1.
    static std::size_t size() { return 1; }
    /// The only tensor.
    view<T, Space> operator[](std::size_t) const { return array; }
    /// Address of the first element: the argument for an array's codec functions.
    T* tensor() const { return array.data(); }
    tensor_division divided(const sharing_ranks& ranks) const { return {array.size(), ranks.count}; }
    tensors_shape shape() const { return array.size(); }
    std::size_t elements() const { return array.size(); }
    static bool has_gaps() { return false; }
    /// Reason why the array cannot be a whole tensor for a topology, as "expected ..., given ..."; empty if it can.
    template <topology Topology>
    static std::string whole_problem(const Topology&) {
        return {};
    }
    /// Reason why the array cannot be the shard of `rank` in the division `d`; empty if it can.
    std::string shard_problem(const tensor_division& d, int rank) const {
        return zeropp::shard_problem(d.part(), rank, array.size());
    }
    /// Reason why the array cannot take a result of the size of `full`; empty if it can.
    template <class U, topology Topology>
    std::string same_problem(const array_operand<U, Space>& full, const Topology&) const {
        if (array.size() == full.array.size()) return {};
        return "expected a result of " + std::to_string(full.array.size()) + " elements, given one of " +
               std::to_string(array.size());
    }
    template <class U>
    bool overlaps(const view<U, Space>& memory) const {
        return overlap(array, memory);
    }
    /// True if the array shares memory with `full` but does not begin where `full` begins.
    template <class U>
    bool overlaps_partly(const array_operand<U, Space>& full) const {
        return overlaps_but_at(full.array, 0, array);
    }
    /// True if the array shares memory with `full` but does not begin at the shard of `rank` in `full`.
    template <class U>
    bool overlaps_elsewhere(const array_operand<U, Space>& full, const tensor_division& d, int rank) const {
        return overlaps_but_at(full.array, d.part().offset(rank), array);
    }
};

/// A tensor_list as a tensor argument of a collective. array_operand explains the members.
template <class T, class Space>
struct list_operand {
    using element_type = std::remove_const_t<T>;
    static constexpr bool is_list = true;

    const tensor_list<T, Space>& list;

    std::size_t size() const { return list.size(); }
    view<T, Space> operator[](std::size_t t) const { return list[t]; }
    tensor_table<T> tensor() const { return {list.resident_tensors()}; }
    list_division divided(const sharing_ranks& ranks) const {
        const std::span<const segment> parts = ranks.of_group ? list.over_groups().of(ranks.count) : list.over_ranks();
        return {parts, list.resident(parts), list.elements(), ranks.of_group ? digest_of(parts) : list.digest()};
    }
    tensors_shape shape() const { return list; }
    std::size_t elements() const { return list.elements(); }
    bool has_gaps() const { return list.has_gaps(); }
    template <topology Topology>
    std::string whole_problem(const Topology& ranks) const {
        return list_ranks_problem(list.ranks(), ranks.size());
    }
    std::string shard_problem(const list_division& d, int rank) const {
        if (list.ranks() != 0) return "expected a list of shards, given one of whole tensors";
        if (list.size() != d.segments().size()) {
            return "expected a list of " + std::to_string(d.segments().size()) + " shards, given one of " +
                   std::to_string(list.size());
        }
        for (std::size_t t = 0; t != list.size(); ++t) {
            const partition& part = d.segments()[t].part;
            const std::size_t n = list[t].size();
            if (n != part.size(rank) && n != part.slice_size()) {
                return "of tensor " + std::to_string(t) + ", " + zeropp::shard_problem(part, rank, n);
            }
        }
        return {};
    }
    template <class U, topology Topology>
    std::string same_problem(const list_operand<U, Space>& full, const Topology& ranks) const {
        if (std::string problem = whole_problem(ranks); !problem.empty()) return problem;
        if (list.digest() == full.list.digest() && list.size() == full.list.size()) return {};
        return "expected a result of the same tensors as full, given " + std::to_string(list.size()) +
               " tensors of other sizes for its " + std::to_string(full.list.size());
    }
    template <class U>
    bool overlaps(const view<U, Space>& memory) const {
        for (std::size_t t = 0; t != list.size(); ++t) {
            if (overlap(list[t], memory)) return true;
        }
        return false;
    }
    template <class U>
    bool overlaps_partly(const list_operand<U, Space>& full) const {
        const auto same = [&](std::size_t t, std::size_t u) {
            return t == u && static_cast<const void*>(list[t].data()) == full.list[t].data() &&
                   list.over_ranks()[t].stride == full.list.over_ranks()[t].stride;
        };
        for (std::size_t t = 0; t != list.size(); ++t) {
            if (!same(t, t)) return lists_overlap(list, full.list, same);
        }
        return list.arrays_overlap() && lists_overlap(list, full.list, same);
    }
    template <class U>
    bool overlaps_elsewhere(const list_operand<U, Space>& full, const list_division& d, int rank) const {
        return lists_overlap(list, full.list, [&](std::size_t t, std::size_t u) {
            const std::size_t offset = static_cast<std::size_t>(rank) * d.segments()[t].stride;
            return t == u && static_cast<const void*>(list[t].data()) == full.list[t].data() + offset;
        });
    }
};

/// `tensors` as a tensor argument of a collective: a list_operand for a tensor_list, otherwise an array_operand.
template <class Space, class R>
auto operand_of(R&& tensors) {
    if constexpr (is_tensor_list<std::remove_cvref_t<R>>) {
        using list = std::remove_cvref_t<R>;
        return list_operand<typename list::element_type, Space>{tensors};
    } else {
        const auto array = as_view<Space>(tensors);
        return array_operand<typename decltype(array)::element_type, Space>{array};
    }
}

/// Element type, without const, of an array or tensor_list of type R.
template <class R, class Space>
using element_of_tensors = typename decltype(operand_of<Space>(std::declval<R&>()))::element_type;

/// Element type of two tensor arguments, of types A and B, of one call. Does not compile unless both have this type,
/// and both are arrays or both are tensor_lists.
template <class Space, class A, class B>
struct shared_element {
    using of_a = decltype(operand_of<Space>(std::declval<A&>()));
    using of_b = decltype(operand_of<Space>(std::declval<B&>()));
    using type = typename of_a::element_type;
    static_assert(std::same_as<type, typename of_b::element_type>, "tensors of a call must have the same element type");
    static_assert(of_a::is_list == of_b::is_list, "tensors of a call must all be arrays, or all tensor_lists");
};

}  // namespace detail

}  // namespace zeropp
