#pragma once
/// \file
/// Reads messages on the host: one, or the sum of several, into tensors.

#include <zeropp/codec/codec.hpp>
#include <zeropp/codec/host/blocks.hpp>
#include <zeropp/codec/host/share.hpp>
#include <zeropp/codec/host/sources.hpp>
#include <zeropp/codec/host/target.hpp>
#include <zeropp/core/element.hpp>
#include <zeropp/core/math.hpp>
#include <zeropp/execution/host.hpp>

#include <cstddef>
#include <cstring>
#include <type_traits>

namespace zeropp::detail {

ZEROPP_DETAIL_INLINE_BEGIN

/// values[i] <- old[i] + values[i], for n elements. Old elements that are not finite count as 0 if
/// `last.drop_non_finite`.
template <element T, class Size>
void add_old(const T* old, Size n, epilogue last, float* values) {
    alignas(64) float present[piece_size];
    load_elements(old, n, present);
    if (last.drop_non_finite) {
        for (std::size_t i = 0; i != n; ++i) present[i] = finite_or_zero(present[i]);
    }
    for (std::size_t i = 0; i != n; ++i) {
        const float sum = present[i] + values[i];
        // The sum of two NaN is either NaN, depending on the order in which a compiler adds.
        values[i] = sum == sum ? sum : quiet_nan;
    }
}

/// to[i] <- element i of a section of one message, for i in [first, first + size). Requires `first` to begin a block
/// and a tile. A separate function, because in the loop that sums messages some formats would take 1.3 times as long.
template <quantizer Q, element T>
void decode_section(const Q& q, const coded_section& from, std::size_t first, std::size_t size, T* to) {
    if constexpr (stores_elements<Q, T>) {
        std::memcpy(to + first, from.codes + code_bytes<Q>(first), code_bytes<Q>(size));
        return;
    }
    for_each_piece_on_target<piece_size, piece_size>(size, [&](std::size_t done, auto n) {
        const std::size_t begin = first + done;
        T* const slice = to + begin;
        if (decode_by_table(q, from, begin, n, slice)) return;
        if constexpr (std::is_same_v<T, float>) {
            decode_to_floats(q, from, begin, n, slice);
        } else {
            // Two loops: compilers do not vectorise one loop that converts codes to floats and floats to T.
            alignas(64) float values[piece_size];
            decode_to_floats(q, from, begin, n, values);
            store_elements(values, n, slice);
        }
    });
}

/// to[i] <- element i of `source`, added to to[i] if `last.accumulate`, for i in [first, first + size). Requires
/// `first` to begin a block and a tile.
template <quantizer Q, element T>
void read_section(const section_sum<Q>& source, std::size_t first, std::size_t size, epilogue last, T* to) {
    const message_sum<Q>& sum = source.of;
    if (sum.contributors == 1 && sum.divisor == 1.0f && !last.accumulate) {
        return decode_section(sum.quantizer, source.first, first, size, to);
    }
    for_each_piece_on_target<piece_size, piece_size>(size, [&](std::size_t done, auto n) {
        const std::size_t begin = first + done;
        T* const slice = to + begin;
        alignas(64) float buffer[piece_size];
        float* sums = buffer;
        if constexpr (std::is_same_v<T, float>) {
            // Sums are made in the tensor itself, so that memory stores some while others are computed.
            if (!last.accumulate) sums = slice;
        }
        source(begin, n, sums);
        if (sums != buffer) return;
        if (last.accumulate) add_old(slice, n, last, buffer);
        store_elements(buffer, n, slice);
    });
}

ZEROPP_DETAIL_INLINE_END

/// Decodes `sum` into the elements of `tensor` that `where` names, divided among `threads`. If `One`, `sum` is one
/// message that replaces elements. The type of the execution is no template parameter, so all host executions share one
/// function.
template <bool One, quantizer Q, class Slices, class Tensor>
void read_slots(const message_sum<Q>& sum, const Slices& where, const Tensor& tensor, [[maybe_unused]] epilogue last,
                const host_threads* threads) {
    const auto open = opener(sum, where);
    divide(threads, where, [&](const share& mine) {
        for_each_part(where, part_order::tensors, mine, [&](const section_part& part) {
            // The offset of a slot without elements may lie beyond the tensor.
            if (part.count == 0) return;
            auto* const to = tensor_at(tensor, where.tensor(part.i)) + part.of.offset(where.in_memory(part.slot));
            const auto source = open(part.of, part.i, part.slot);
            if constexpr (One) {
                decode_section(sum.quantizer, source.first, part.first, part.count, to);
            } else {
                read_section(source, part.first, part.count, last, to);
            }
        });
    });
}

}  // namespace zeropp::detail
