#pragma once
/// \file
/// Which elements of a tensor, or of a list of them, the messages of a run of slots carry.

#include <zeropp/core/math.hpp>
#include <zeropp/core/message_place.hpp>
#include <zeropp/topology/partition.hpp>
#include <zeropp/topology/slice_order.hpp>

#include <cstddef>

namespace zeropp {

/// What every message of a run carries of one tensor: elements [begin, begin + count) of the slice of the message's
/// rank, as far as that slice reaches.
struct section {
    partition part;
    /// Between the slices of successive ranks in memory, in elements; 0 where memory holds one slice alone.
    std::size_t stride;
    std::size_t begin;
    std::size_t count;
    /// Where in each message.
    message_place place;
    /// Where in a message that carries whole slices of all tensors.
    message_place of_whole;

    /// Where in memory the elements of the slice at this place begin, from the first of the tensor: a rank's place is
    /// its number, but in packed_slices.
    constexpr ZEROPP_HOST_DEVICE std::size_t offset(int place_in_memory) const {
        return static_cast<std::size_t>(place_in_memory) * stride + begin;
    }

    /// How many there are: `count`, or fewer where the slice ends, or none.
    constexpr ZEROPP_HOST_DEVICE std::size_t size(int rank) const {
        const std::size_t n = part.size(rank);
        return n <= begin ? 0 : n - begin < count ? n - begin : count;
    }
};

/// Elements [begin, begin + count) of the slices of one tensor, in the messages of `slots` consecutive slots.
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

    /// The rank of the s-th slot of the run.
    constexpr ZEROPP_HOST_DEVICE int rank(int s) const { return order.rank(first_slot + s); }
    /// At which place in memory its slice is.
    constexpr ZEROPP_HOST_DEVICE int in_memory(int s) const { return rank(s); }

    /// Where in the tensor the elements of the s-th slot begin, and how many there are.
    constexpr ZEROPP_HOST_DEVICE std::size_t offset(int s) const { return only().offset(rank(s)); }
    constexpr ZEROPP_HOST_DEVICE std::size_t size(int s) const { return only().size(rank(s)); }

    /// The same elements in other slots, and in one rank's slice that memory holds alone.
    constexpr slices in_slots(const slice_order& of, int first, int n) const {
        return {part, of, begin, count, first, n, origin};
    }
    constexpr slices in_own(int r) const { return single(part.size(r), begin, count, part.offset(r)); }

    /// As list_slices, with one section.
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
    constexpr slices only_slot(int s) const { return {part, slice_order{}, begin, count, rank(s), 1, origin}; }

private:
    constexpr ZEROPP_HOST_DEVICE section only() const { return {part, part.slice_size(), begin, count, {}, {}}; }
};

/// One tensor of a list.
struct segment {
    partition part;
    /// Between the slices of successive ranks in memory, in elements.
    std::size_t stride;
    /// Where its slices lie in messages that carry whole slices of all tensors.
    message_place place;
};

/// The same of a list of tensors: in each message, elements from `begin` of the tensor `first` to `end` of the tensor
/// `first + tensors - 1`, of their slices. Refers to the segments of the list, in the memory of the execution.
struct list_slices {
    const segment* segments;
    std::size_t first;
    std::size_t tensors;
    std::size_t begin;
    std::size_t end;
    /// Of the first of these tensors and the last; what their segments say, for where those cannot be read.
    message_place first_place;
    message_place last_place;
    slice_order order{};
    int first_slot = 0;
    int slots = 0;
    /// Whether the tensors in memory are one rank's slices, and nothing else.
    bool own = false;

    /// As slices: of the s-th slot of the run, its rank and the place of its slices in memory.
    constexpr ZEROPP_HOST_DEVICE int rank(int s) const { return order.rank(first_slot + s); }
    constexpr ZEROPP_HOST_DEVICE int in_memory(int s) const { return rank(s); }

    /// Whether these are of a list, for code that has both.
    static constexpr bool is_list = true;
    /// The tensors that these messages carry parts of.
    constexpr ZEROPP_HOST_DEVICE std::size_t sections() const { return tensors; }
    /// The i-th of them, and its number in the list.
    constexpr ZEROPP_HOST_DEVICE section at(std::size_t i) const {
        const segment& s = segments[first + i];
        const std::size_t from = i == 0 ? begin : 0;
        const std::size_t to = i + 1 == tensors ? end : s.part.slice_size();
        return {s.part, own ? 0 : s.stride, from, to - from, place(i, s.place), s.place};
    }
    constexpr ZEROPP_HOST_DEVICE std::size_t tensor(std::size_t i) const { return first + i; }
    /// The one that a block of `size` elements of these messages belongs to, or follows. Requires any.
    constexpr ZEROPP_HOST_DEVICE std::size_t section_of(std::size_t block, std::size_t size) const {
        std::size_t low = 0;
        for (std::size_t high = tensors; high - low > 1;) {
            const std::size_t middle = low + (high - low) / 2;
            (place(middle, segments[first + middle].place).blocks(size) <= block ? low : high) = middle;
        }
        return low;
    }
    /// Where the i-th ends, in elements and blocks of `size`: with the padding before the next, or with the message.
    constexpr ZEROPP_HOST_DEVICE std::size_t elements_end(std::size_t i) const {
        return i + 1 == tensors ? last().elements + last_count() : place(i + 1, segments[first + i + 1].place).elements;
    }
    constexpr ZEROPP_HOST_DEVICE std::size_t blocks_end(std::size_t i, std::size_t size) const {
        return i + 1 == tensors ? last().blocks(size) + ceil_div(last_count(), size)
                                : place(i + 1, segments[first + i + 1].place).blocks(size);
    }
    /// The index of the first element of a section in its tensor.
    constexpr ZEROPP_HOST_DEVICE std::size_t index(const section& p, int s) const {
        return p.part.offset(rank(s)) + p.begin;
    }
    /// The last section, which says how large the messages are.
    constexpr ZEROPP_HOST_DEVICE message_place last() const {
        return tensors == 0 ? message_place() : place(tensors - 1, last_place);
    }
    constexpr ZEROPP_HOST_DEVICE std::size_t last_count() const { return tensors == 1 ? end - begin : end; }
    /// The same elements in other slots, and in one rank's slices that memory holds alone.
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
    /// The s-th slot alone, by its rank.
    constexpr list_slices only_slot(int s) const { return in_slots({}, rank(s), 1); }

private:
    /// In these messages, where the first tensor's elements before `begin` are not.
    constexpr ZEROPP_HOST_DEVICE message_place place(std::size_t i, const message_place& of_whole) const {
        if (i == 0) return {};
        return {of_whole.elements - first_place.elements - begin, i};
    }
};

/// Slots whose slices are all that memory holds, one behind the other, `stride` elements apart. A type of its own, so
/// that others pay nothing for it.
template <class Slices>
struct packed_slices : Slices {
    std::size_t stride;
    /// The place of the first.
    int first_place = 0;

    /// As `Slices` have them, of where these slices are in memory.
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
    constexpr packed_slices only_slot(int s) const { return {Slices::only_slot(s), stride, in_memory(s)}; }
};

}  // namespace zeropp
