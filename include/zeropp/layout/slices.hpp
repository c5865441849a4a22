#pragma once
/// \file
/// Elements of a tensor, or of a list of tensors, in the messages of consecutive slots.

#include <zeropp/core/math.hpp>
#include <zeropp/layout/partition.hpp>
#include <zeropp/layout/wire_layout.hpp>
#include <zeropp/topology/topology.hpp>

#include <cstddef>

namespace zeropp {

/// Part of one tensor in every message: elements [begin, begin + count) of the shard of the message's rank, as far as
/// that shard reaches.
struct section {
    partition part;
    /// Distance between successive ranks' shards in memory, in elements; 0 if memory holds one shard.
    std::size_t stride;
    std::size_t begin;
    std::size_t count;
    /// Place of the elements in each message.
    message_place place;
    /// Place of the tensor in messages of whole shards.
    message_place of_whole;

    /// Offset of the elements in memory from the tensor's first. `place_in_memory` is the number of the shard there:
    /// its rank, except in packed_slices.
    constexpr ZEROPP_HOST_DEVICE std::size_t offset(int place_in_memory) const {
        return static_cast<std::size_t>(place_in_memory) * stride + begin;
    }

    /// Number of elements of `rank`: `count`, or fewer if its shard ends before.
    constexpr ZEROPP_HOST_DEVICE std::size_t size(int rank) const {
        const std::size_t n = part.size(rank);
        return n <= begin ? 0 : n - begin < count ? n - begin : count;
    }
};

/// Elements [begin, begin + count) of the shards of one tensor, in the messages of `slots` consecutive slots.
struct slices {
    partition part;
    slice_order order;
    std::size_t begin;
    std::size_t count;
    int first_slot;
    int slots;
    /// Index of this tensor's first element in the whole tensor, if this one is only a part.
    std::size_t origin = 0;

    /// One slot with elements [begin, begin + count) of a tensor of `size` elements.
    static constexpr ZEROPP_HOST_DEVICE slices single(std::size_t size, std::size_t begin, std::size_t count,
                                                      std::size_t origin = 0) {
        return {partition(size, 1), slice_order{}, begin, count, 0, 1, origin};
    }

    /// Rank of the s-th slot.
    constexpr ZEROPP_HOST_DEVICE int rank(int s) const { return order.rank(first_slot + s); }
    /// Number of the s-th slot's shard in memory.
    constexpr ZEROPP_HOST_DEVICE int in_memory(int s) const { return rank(s); }

    /// Offset in the tensor, and number of elements, of the s-th slot.
    constexpr ZEROPP_HOST_DEVICE std::size_t offset(int s) const { return only().offset(rank(s)); }
    constexpr ZEROPP_HOST_DEVICE std::size_t size(int s) const { return only().size(rank(s)); }

    /// These elements in `n` slots from `first` in order `of`; and in slot and memory of rank `r` alone.
    constexpr slices in_slots(const slice_order& of, int first, int n) const {
        return {part, of, begin, count, first, n, origin};
    }
    constexpr slices in_own(int r) const { return single(part.size(r), begin, count, part.offset(r)); }

    /// Interface of list_slices for a single tensor.
    static constexpr bool is_list = false;
    static constexpr ZEROPP_HOST_DEVICE std::size_t sections() { return 1; }
    constexpr ZEROPP_HOST_DEVICE section at(std::size_t) const { return only(); }
    static constexpr ZEROPP_HOST_DEVICE std::size_t tensor(std::size_t) { return 0; }
    static constexpr ZEROPP_HOST_DEVICE std::size_t section_of(std::size_t, std::size_t) { return 0; }
    constexpr ZEROPP_HOST_DEVICE std::size_t elements_end(std::size_t) const { return count; }
    constexpr ZEROPP_HOST_DEVICE std::size_t blocks_end(std::size_t, std::size_t size) const {
        return ceil_div(count, size);
    }
    constexpr ZEROPP_HOST_DEVICE std::size_t index(const section& p, int s) const { return origin + p.offset(rank(s)); }
    constexpr ZEROPP_HOST_DEVICE message_place last() const { return {}; }
    constexpr ZEROPP_HOST_DEVICE std::size_t last_count() const { return count; }
    constexpr slices even_slots(int s, int n, int apart) const {
        return in_slots(detail::evenly(rank(s), n, apart), n, n);
    }

private:
    constexpr ZEROPP_HOST_DEVICE section only() const { return {part, part.slice_size(), begin, count, {}, {}}; }
};

/// Division of one tensor of a list.
struct segment {
    partition part;
    /// Distance between successive ranks' shards in memory, in elements.
    std::size_t stride;
    /// Place of the tensor in messages of whole shards.
    message_place place;
};

/// Elements of the shards of a list, in the messages of `slots` consecutive slots: from element `begin` of tensor
/// `first` up to `end` of tensor `first + tensors - 1`. Refers to the list's segments, in the execution's memory.
struct list_slices {
    const segment* segments;
    std::size_t first;
    std::size_t tensors;
    std::size_t begin;
    std::size_t end;
    /// Places of the first and the last tensor in messages of whole shards, for code that cannot read `segments`.
    message_place first_place;
    message_place last_place;
    slice_order order{};
    int first_slot = 0;
    int slots = 0;
    /// True if memory holds only one rank's shards.
    bool own = false;

    /// Rank of the s-th slot, and number of its shards in memory.
    constexpr ZEROPP_HOST_DEVICE int rank(int s) const { return order.rank(first_slot + s); }
    constexpr ZEROPP_HOST_DEVICE int in_memory(int s) const { return rank(s); }

    /// True for a list, false for a single tensor.
    static constexpr bool is_list = true;
    /// Number of tensors in these messages.
    constexpr ZEROPP_HOST_DEVICE std::size_t sections() const { return tensors; }
    /// Part of the i-th tensor in these messages, and its number in the list.
    constexpr ZEROPP_HOST_DEVICE section at(std::size_t i) const {
        const segment& s = segments[first + i];
        const std::size_t from = i == 0 ? begin : 0;
        const std::size_t to = i + 1 == tensors ? end : s.part.slice_size();
        return {s.part, own ? 0 : s.stride, from, to - from, place(i, s.place), s.place};
    }
    constexpr ZEROPP_HOST_DEVICE std::size_t tensor(std::size_t i) const { return first + i; }
    /// Index i of the tensor that a block of `size` elements belongs to, or follows as padding. Requires at least one.
    constexpr ZEROPP_HOST_DEVICE std::size_t section_of(std::size_t block, std::size_t size) const {
        std::size_t low = 0;
        for (std::size_t high = tensors; high - low > 1;) {
            const std::size_t middle = low + (high - low) / 2;
            (place(middle, segments[first + middle].place).blocks(size) <= block ? low : high) = middle;
        }
        return low;
    }
    /// End of the i-th tensor in elements, and in blocks of `size` elements, with the padding before the next tensor.
    constexpr ZEROPP_HOST_DEVICE std::size_t elements_end(std::size_t i) const {
        return i + 1 == tensors ? last().elements + last_count() : place(i + 1, segments[first + i + 1].place).elements;
    }
    constexpr ZEROPP_HOST_DEVICE std::size_t blocks_end(std::size_t i, std::size_t size) const {
        return i + 1 == tensors ? last().blocks(size) + ceil_div(last_count(), size)
                                : place(i + 1, segments[first + i + 1].place).blocks(size);
    }
    /// Index of the first element of `p` in the whole tensor, for the s-th slot.
    constexpr ZEROPP_HOST_DEVICE std::size_t index(const section& p, int s) const {
        return p.part.offset(rank(s)) + p.begin;
    }
    /// Place and number of elements of the last tensor, which determine the size of messages.
    constexpr ZEROPP_HOST_DEVICE message_place last() const {
        return tensors == 0 ? message_place() : place(tensors - 1, last_place);
    }
    constexpr ZEROPP_HOST_DEVICE std::size_t last_count() const { return tensors == 1 ? end - begin : end; }
    /// These elements in `n` slots from `first_of_run` in order `of`; and in slot and memory of rank `r` alone.
    constexpr list_slices in_slots(const slice_order& of, int first_of_run, int n) const {
        list_slices run = *this;
        run.order = of;
        run.first_slot = first_of_run;
        run.slots = n;
        return run;
    }
    constexpr list_slices in_own(int r) const {
        list_slices run = in_slots({}, r, 1);
        run.own = true;
        return run;
    }
    /// The `n` slots from the s-th on, each of a rank `apart` above the one's before, in an order without a table.
    constexpr list_slices even_slots(int s, int n, int apart) const {
        return in_slots(detail::evenly(rank(s), n, apart), n, n);
    }

private:
    /// Place of the i-th tensor in these messages, which begin with element `begin` of the first one.
    constexpr ZEROPP_HOST_DEVICE message_place place(std::size_t i, const message_place& of_whole) const {
        if (i == 0) return {};
        return {of_whole.elements - first_place.elements - begin, i};
    }
};

/// Slots for all shards in memory, in order, `stride` elements apart. A separate type: others pay nothing for it.
template <class Slices>
struct packed_slices : Slices {
    std::size_t stride;
    /// Number of the first slot's shard in memory.
    int first_place = 0;

    /// Members of `Slices` that depend on the shards' places in memory.
    constexpr ZEROPP_HOST_DEVICE int in_memory(int s) const { return first_place + s; }
    constexpr ZEROPP_HOST_DEVICE section at(std::size_t i) const {
        section of = Slices::at(i);
        of.stride = stride;
        return of;
    }
    constexpr ZEROPP_HOST_DEVICE std::size_t index(section of, int s) const {
        of.stride = of.part.slice_size();
        return Slices::index(of, s);
    }
    constexpr packed_slices even_slots(int s, int n, int apart) const {
        return {Slices::even_slots(s, n, apart), stride, in_memory(s)};
    }
};

/// Addresses of a list's tensors, in the execution's memory. Codec functions take it as their tensor argument, together
/// with list_slices.
template <class T>
struct tensor_table {
    T* const* tensors;
};

}  // namespace zeropp
