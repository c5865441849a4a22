#pragma once
/// \file
/// Elements of a tensor, or of a list of tensors, in the messages of consecutive slots.

#include <zeropp/core/math.hpp>
#include <zeropp/layout/partition.hpp>
#include <zeropp/layout/wire_layout.hpp>
#include <zeropp/topology/topology.hpp>

#include <cstddef>

namespace zeropp {

/// The elements of one tensor in each message: elements [begin, begin + count) of the message's shard of that tensor. A
/// shard that ends before has fewer.
struct section {
    partition part;
    /// Distance between successive ranks' shards in memory, in elements; 0 if memory holds one rank's shard.
    std::size_t stride;
    std::size_t begin;
    std::size_t count;
    /// Place of these elements in each message.
    message_place place;
    /// Place of the tensor's shard in a message that has whole shards.
    message_place of_whole;

    /// Offset in memory of the elements of one shard, from the tensor's first element. `place_in_memory` is the shard's
    /// index in memory: its rank, except in packed_slices.
    constexpr ZEROPP_HOST_DEVICE std::size_t offset(int place_in_memory) const {
        return static_cast<std::size_t>(place_in_memory) * stride + begin;
    }

    /// Number of elements in the message of `rank`: `count`, or fewer if the shard of `rank` ends before.
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
    /// If `part` covers only a shard, the index of that shard's first element in the whole tensor; otherwise 0.
    std::size_t origin = 0;

    /// Elements [begin, begin + count) of a tensor of `size` elements, in the message of a single slot.
    static constexpr ZEROPP_HOST_DEVICE slices single(std::size_t size, std::size_t begin, std::size_t count,
                                                      std::size_t origin = 0) {
        return {partition(size, 1), slice_order{}, begin, count, 0, 1, origin};
    }

    /// Rank of the s-th slot.
    constexpr ZEROPP_HOST_DEVICE int rank(int s) const { return order.rank(first_slot + s); }
    /// Index of the s-th slot's shard among the shards in memory.
    constexpr ZEROPP_HOST_DEVICE int in_memory(int s) const { return rank(s); }

    /// Offset in the tensor, in elements, of the s-th slot's message.
    constexpr ZEROPP_HOST_DEVICE std::size_t offset(int s) const { return only().offset(rank(s)); }
    /// Number of elements in the s-th slot's message.
    constexpr ZEROPP_HOST_DEVICE std::size_t size(int s) const { return only().size(rank(s)); }

    /// Equal slices for the messages of `n` slots of order `of`, from slot `first` on.
    constexpr slices in_slots(const slice_order& of, int first, int n) const {
        return {part, of, begin, count, first, n, origin};
    }
    /// Equal slices for the message of rank `r` alone, and for memory that holds only the shard of `r`.
    constexpr slices in_own(int r) const { return single(part.size(r), begin, count, part.offset(r)); }

    /// False: the elements are of a single tensor. list_slices has the members below, too.
    static constexpr bool is_list = false;
    /// Number of tensors in these messages: 1.
    static constexpr ZEROPP_HOST_DEVICE std::size_t sections() { return 1; }
    /// Section of the only tensor.
    constexpr ZEROPP_HOST_DEVICE section at(std::size_t) const { return only(); }
    /// Index of the only tensor: 0.
    static constexpr ZEROPP_HOST_DEVICE std::size_t tensor(std::size_t) { return 0; }
    /// Index of the tensor that owns a block: 0.
    static constexpr ZEROPP_HOST_DEVICE std::size_t section_of(std::size_t, std::size_t) { return 0; }
    /// End of the tensor in these messages, in elements.
    constexpr ZEROPP_HOST_DEVICE std::size_t elements_end(std::size_t) const { return count; }
    /// End of the tensor in these messages, in blocks of `size` elements.
    constexpr ZEROPP_HOST_DEVICE std::size_t blocks_end(std::size_t, std::size_t size) const {
        return ceil_div(count, size);
    }
    /// Index in the whole tensor of the first element of section `p`, for the s-th slot.
    constexpr ZEROPP_HOST_DEVICE std::size_t index(const section& p, int s) const { return origin + p.offset(rank(s)); }
    /// Where the tensor lies in these messages: at their beginning.
    constexpr ZEROPP_HOST_DEVICE message_place last() const { return {}; }
    /// Number of elements of the tensor in a message.
    constexpr ZEROPP_HOST_DEVICE std::size_t last_count() const { return count; }
    /// Equal slices for the `n` slots from the s-th on. The ranks of these slots must be `apart` apart.
    constexpr slices even_slots(int s, int n, int apart) const {
        return in_slots(detail::evenly(rank(s), n, apart), n, n);
    }

private:
    constexpr ZEROPP_HOST_DEVICE section only() const { return {part, part.slice_size(), begin, count, {}, {}}; }
};

/// Division of one tensor of a list over ranks.
struct segment {
    partition part;
    /// Distance between successive ranks' shards in memory, in elements.
    std::size_t stride;
    /// Place of the tensor's shard in a message that has whole shards.
    message_place place;
};

/// Elements of a list's shards, in the messages of `slots` consecutive slots. The elements begin with element `begin`
/// of tensor `first` and end before element `end` of tensor `first + tensors - 1`. `segments` has the division of each
/// tensor, in the execution's memory.
struct list_slices {
    const segment* segments;
    std::size_t first;
    std::size_t tensors;
    std::size_t begin;
    std::size_t end;
    /// Place of the first tensor's shard in a message that has whole shards. A copy, for code that cannot read
    /// `segments`.
    message_place first_place;
    /// Place of the last tensor's shard in a message that has whole shards.
    message_place last_place;
    slice_order order{};
    int first_slot = 0;
    int slots = 0;
    /// True if memory holds one rank's shards only.
    bool own = false;

    /// Rank of the s-th slot.
    constexpr ZEROPP_HOST_DEVICE int rank(int s) const { return order.rank(first_slot + s); }
    /// Index of the s-th slot's shards among the ranks' shards in memory.
    constexpr ZEROPP_HOST_DEVICE int in_memory(int s) const { return rank(s); }

    /// True for a list, false for a single tensor.
    static constexpr bool is_list = true;
    /// Number of tensors in these messages.
    constexpr ZEROPP_HOST_DEVICE std::size_t sections() const { return tensors; }
    /// Section of the i-th tensor in these messages.
    constexpr ZEROPP_HOST_DEVICE section at(std::size_t i) const {
        const segment& s = segments[first + i];
        const std::size_t from = i == 0 ? begin : 0;
        const std::size_t to = i + 1 == tensors ? end : s.part.slice_size();
        return {s.part, own ? 0 : s.stride, from, to - from, place(i, s.place), s.place};
    }
    /// Index in the list of the i-th tensor in these messages.
    constexpr ZEROPP_HOST_DEVICE std::size_t tensor(std::size_t i) const { return first + i; }
    /// Index, among the tensors in these messages, of the tensor that owns block `block` of `size` elements. Padding
    /// belongs to the preceding tensor. Requires at least one tensor.
    constexpr ZEROPP_HOST_DEVICE std::size_t section_of(std::size_t block, std::size_t size) const {
        std::size_t low = 0;
        for (std::size_t high = tensors; high - low > 1;) {
            const std::size_t middle = low + (high - low) / 2;
            (place(middle, segments[first + middle].place).blocks(size) <= block ? low : high) = middle;
        }
        return low;
    }
    /// End of the i-th tensor in these messages, in elements, with the padding before the next tensor.
    constexpr ZEROPP_HOST_DEVICE std::size_t elements_end(std::size_t i) const {
        return i + 1 == tensors ? last().elements + last_count() : place(i + 1, segments[first + i + 1].place).elements;
    }
    /// End of the i-th tensor in these messages, in blocks of `size` elements, with the padding before the next tensor.
    constexpr ZEROPP_HOST_DEVICE std::size_t blocks_end(std::size_t i, std::size_t size) const {
        return i + 1 == tensors ? last().blocks(size) + ceil_div(last_count(), size)
                                : place(i + 1, segments[first + i + 1].place).blocks(size);
    }
    /// Index in the whole tensor of the first element of section `p`, for the s-th slot.
    constexpr ZEROPP_HOST_DEVICE std::size_t index(const section& p, int s) const {
        return p.part.offset(rank(s)) + p.begin;
    }
    /// Where the last tensor lies in these messages. With `last_count()`, determines the size of a message.
    constexpr ZEROPP_HOST_DEVICE message_place last() const {
        return tensors == 0 ? message_place() : place(tensors - 1, last_place);
    }
    /// Number of elements of the last tensor in a message.
    constexpr ZEROPP_HOST_DEVICE std::size_t last_count() const { return tensors == 1 ? end - begin : end; }
    /// Equal slices for the messages of `n` slots of order `of`, from slot `first_of_run` on.
    constexpr list_slices in_slots(const slice_order& of, int first_of_run, int n) const {
        list_slices run = *this;
        run.order = of;
        run.first_slot = first_of_run;
        run.slots = n;
        return run;
    }
    /// Equal slices for the message of rank `r` alone, and for memory that holds only the shards of `r`.
    constexpr list_slices in_own(int r) const {
        list_slices run = in_slots({}, r, 1);
        run.own = true;
        return run;
    }
    /// Equal slices for the `n` slots from the s-th on, by an order without a table. The ranks of these slots must be
    /// `apart` apart.
    constexpr list_slices even_slots(int s, int n, int apart) const {
        return in_slots(detail::evenly(rank(s), n, apart), n, n);
    }

private:
    /// Where the i-th tensor lies in these messages, which begin with element `begin` of the first tensor.
    constexpr ZEROPP_HOST_DEVICE message_place place(std::size_t i, const message_place& of_whole) const {
        if (i == 0) return {};
        return {of_whole.elements - first_place.elements - begin, i};
    }
};

/// `Slices` for memory that holds the shards of consecutive slots in slot order, `stride` elements apart. A separate
/// type, so that calls on other memory do not pay for `stride`.
template <class Slices>
struct packed_slices : Slices {
    std::size_t stride;
    /// Index of the first slot's shard among the shards in memory.
    int first_place = 0;

    /// Index of the s-th slot's shard among the shards in memory.
    constexpr ZEROPP_HOST_DEVICE int in_memory(int s) const { return first_place + s; }
    /// Section of the i-th tensor in these messages.
    constexpr ZEROPP_HOST_DEVICE section at(std::size_t i) const {
        section of = Slices::at(i);
        of.stride = stride;
        return of;
    }
    /// Index in the whole tensor of the first element of section `of`, for the s-th slot.
    constexpr ZEROPP_HOST_DEVICE std::size_t index(section of, int s) const {
        of.stride = of.part.slice_size();
        return Slices::index(of, s);
    }
    /// Equal slices for the `n` slots from the s-th on. The ranks of these slots must be `apart` apart.
    constexpr packed_slices even_slots(int s, int n, int apart) const {
        return {Slices::even_slots(s, n, apart), stride, in_memory(s)};
    }
};

/// Table of the addresses of a list's tensors, in the execution's memory. Codec functions take it with list_slices.
template <class T>
struct tensor_table {
    T* const* tensors;
};

}  // namespace zeropp
