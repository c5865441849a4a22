#pragma once
/// \file
/// Reads messages on the host: decode, and decode + sum, into tensors. The `*_slots` functions know no execution, so
/// that host executions share their instances.

#include <zeropp/codec/codec.hpp>
#include <zeropp/codec/host/blocks.hpp>
#include <zeropp/codec/host/share.hpp>
#include <zeropp/codec/host/sources.hpp>
#include <zeropp/codec/host/sums.hpp>
#include <zeropp/codec/host/target.hpp>
#include <zeropp/core/element.hpp>
#include <zeropp/core/math.hpp>
#include <zeropp/execution/host_threads.hpp>
#include <zeropp/layout/slices.hpp>
#include <zeropp/layout/wire_layout.hpp>

#include <cstddef>
#include <type_traits>

namespace zeropp::detail {

ZEROPP_DETAIL_INLINE_BEGIN

/// to[i] <- element i in [first, first + size) of a section of a message; `first` begins a block and a tile.
template <quantizer Q, element T>
void decode_section(const Q& q, const coded_section& from, std::size_t first, std::size_t size, T* to) {
    for_each_piece_on_target<piece_size, piece_size>(size, [&](std::size_t done, auto n) {
        const std::size_t begin = first + done;
        T* const slice = to + begin;
        if (decode_by_table(quantizer_of(q, from), from, begin, n, slice)) return;
        if constexpr (std::is_same_v<T, float>) {
            decode_to_floats(q, from, begin, n, slice);
        } else {
            // Two loops: compilers do not vectorise one loop with both conversions.
            alignas(64) float values[piece_size];
            decode_to_floats(q, from, begin, n, values);
            store_elements(values, n, slice);
        }
    });
}

/// to[i] <- epilogue of element i's sum, i in [first, first + size), over `contributors` messages `stride` bytes apart.
template <quantizer From, element T>
void reduce_section(const From& from, const coded_section& message, std::size_t stride, int contributors,
                    std::size_t first, std::size_t size, epilogue f, T* to) {
    for_each_piece_on_target<piece_size, piece_size>(size, [&](std::size_t done, auto n) {
        const std::size_t begin = first + done;
        T* const slice = to + begin;
        alignas(64) float buffer[piece_size];
        float* sums = buffer;
        if constexpr (std::is_same_v<T, float>) {
            // In the tensor itself, so that memory takes some sums while the next ones are computed.
            if (!f.accumulate) sums = slice;
        }
        sum_elements(from, message, stride, contributors, begin, n, sums);
        divide(sums, n, f.divisor);
        if (sums != buffer) return;
        if (f.accumulate) {
            alignas(64) float present[piece_size];
            load_elements(slice, n, present);
            if (f.drop_non_finite) {
                for (std::size_t i = 0; i != n; ++i) present[i] = finite_or_zero(present[i]);
            }
            for (std::size_t i = 0; i != n; ++i) {
                const float sum = present[i] + buffer[i];
                // The sum of two NaN is one of them, depending on the order in which a compiler adds.
                buffer[i] = sum == sum ? sum : quiet_nan;
            }
        }
        store_elements(buffer, n, slice);
    });
}

ZEROPP_DETAIL_INLINE_END

/// Calls write(section of a message, first, n, address of the section in its tensor) for each part of a section that
/// `mine` takes. Parts come in the order of memory.
template <quantizer Q, class Tensor, class Slices, class Write>
void for_each_part_of(const wire_layout<Q>& layout, const std::byte* messages, const Slices& where,
                      const Tensor& tensor, share mine, Write write) {
    for (std::size_t i = 0; i != where.sections(); ++i) {
        const section of = where.at(i);
        for_each_slot_in_memory(where, [&](int s) {
            mine.for_each_part(of.size(where.rank(s)), [&](std::size_t first, std::size_t n) {
                write(coded_section(layout, of.place, message_at(messages, s, layout.bytes)), first, n,
                      tensor_at(tensor, where.tensor(i)) + of.offset(where.in_memory(s)));
            });
        });
    }
}

template <quantizer Q, class Tensor, class Slices>
void decode_slots(const Q& q, const std::byte* messages, const Slices& where, const Tensor& tensor,
                  const host_threads* threads) {
    const auto layout = layout_of<Q>(where);
    const auto write = [&](const coded_section& from, std::size_t first, std::size_t n, auto* to) {
        decode_section(q, from, first, n, to);
    };
    divide(threads, where, [&](const share& mine) { for_each_part_of(layout, messages, where, tensor, mine, write); });
}

template <quantizer From, class Tensor, class Slices>
void reduce_decode_slots(const From& from, const std::byte* messages, int contributors, const Slices& where,
                         const Tensor& tensor, epilogue f, const host_threads* threads) {
    const auto layout = layout_of<From>(where);
    const std::size_t stride = static_cast<std::size_t>(where.slots) * layout.bytes;
    const auto write = [&](const coded_section& message, std::size_t first, std::size_t n, auto* to) {
        reduce_section(from, message, stride, contributors, first, n, f, to);
    };
    divide(threads, where, [&](const share& mine) { for_each_part_of(layout, messages, where, tensor, mine, write); });
}

}  // namespace zeropp::detail
