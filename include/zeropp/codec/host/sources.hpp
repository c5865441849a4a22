#pragma once
/// \file
/// Sources of values for the host codec: a tensor, a table of tensors, a `difference` of two of these, or a
/// `message_sum`. `section_in` finds a source's section in a slot. `floats_of` returns its elements as floats.

#include <zeropp/codec/codec.hpp>
#include <zeropp/codec/host/avx512.hpp>
#include <zeropp/codec/host/blocks.hpp>
#include <zeropp/codec/host/code_sums.hpp>
#include <zeropp/codec/host/rotation.hpp>
#include <zeropp/codec/host/share.hpp>
#include <zeropp/codec/host/target.hpp>
#include <zeropp/core/element.hpp>
#include <zeropp/core/math.hpp>
#include <zeropp/layout/slices.hpp>
#include <zeropp/layout/wire_layout.hpp>
#include <zeropp/quantizer/quantizer.hpp>

#include <cstddef>
#include <type_traits>

namespace zeropp::detail {

/// A section of a `message_sum` in one slot.
template <quantizer Q>
struct section_sum {
    message_sum<Q> of;
    /// The section in the first contributor's message.
    coded_section first;
    /// Bytes from the start of a contributor's message to that of the next contributor's.
    std::size_t stride;
};

/// Section `part.of` in slot `part.slot`. For a tensor or table, the address of the section's first element; for a
/// `difference`, both addresses; for a `message_sum`, a section_sum.
template <class T, class Slices>
T* section_in(T* tensor, const Slices& where, const section_part& part) {
    return tensor + part.of.offset(where.in_memory(part.slot));
}
template <class T, class Slices>
T* section_in(const tensor_table<T>& list, const Slices& where, const section_part& part) {
    return section_in(list.tensors[where.tensor(part.i)], where, part);
}
template <class Tensor, class Base, class Slices>
auto section_in(const difference<Tensor, Base>& d, const Slices& where, const section_part& part) {
    return difference{section_in(d.tensor, where, part), section_in(d.base, where, part)};
}
template <quantizer Q, class Slices>
section_sum<Q> section_in(const message_sum<Q>& sum, const Slices& where, const section_part& part) {
    const wire_layout<Q> layout(where.last_count(), where.last());
    const std::byte* const message = sum.messages + static_cast<std::size_t>(part.slot) * layout.bytes;
    return {sum, {layout, part.of.place, message}, static_cast<std::size_t>(where.slots) * layout.bytes};
}

ZEROPP_DETAIL_INLINE_BEGIN

/// to <- n elements as floats.
template <element T, class Size>
void load_elements(const T* from, Size n, float* to) {
    if constexpr (loads_in_vectors<T, Size>) {
        load_in_vectors(from, n, to);
    } else {
        for (std::size_t i = 0; i != n; ++i) to[i] = element_traits<T>::to_float(from[i]);
    }
}

/// to <- n floats as elements.
template <element T, class Size>
void store_elements(const float* from, Size n, T* to) {
    if constexpr (stores_in_vectors<T, Size>) {
        store_in_vectors(from, n, to);
    } else {
        for (std::size_t i = 0; i != n; ++i) to[i] = element_traits<T>::from_float(from[i]);
    }
}

/// sums[i] <- the sum of element begin + i over `contributors` messages, in order. Messages start `stride` bytes apart.
/// Sums are rotated back if Q rotates. `begin` begins a block and a tile.
template <quantizer Q, class Size>
void sum_elements(const Q& q, const coded_section& first, std::size_t stride, int contributors, std::size_t begin,
                  Size n, float* sums) {
    const auto messages = static_cast<std::size_t>(contributors);
    for_each_piece<piece_size>(n, [&](std::size_t done, auto some) {
        float* const sum = sums + done;
        if constexpr (sums_in_vectors<Q, decltype(some)>()) {
            sum_in_vectors(q, first, stride, messages, begin + done, some, sum);
        } else {
            sum_one_by_one(q, first, stride, messages, begin + done, some, sum);
        }
        rotate<Q>(sum, some, true, sum);
    });
}

/// Elements [begin, begin + n) of a section as floats: in place, or in `buffer`. Sums are divided by `divisor`.
/// Elements of a base that are not finite count as 0.
template <element T, class Size>
const float* floats_of(const T* section, std::size_t begin, Size n, float* buffer) {
    if constexpr (std::is_same_v<T, float>) {
        return section + begin;
    } else {
        load_elements(section + begin, n, buffer);
        return buffer;
    }
}
template <class T, class Base, class Size>
const float* floats_of(const difference<T*, Base*>& section, std::size_t begin, Size n, float* buffer) {
    for (std::size_t i = 0; i != n; ++i) {
        const float base = element_traits<std::remove_const_t<Base>>::to_float(section.base[begin + i]);
        buffer[i] = element_traits<std::remove_const_t<T>>::to_float(section.tensor[begin + i]) - finite_or_zero(base);
    }
    return buffer;
}
template <quantizer Q, class Size>
const float* floats_of(const section_sum<Q>& section, std::size_t begin, Size n, float* buffer) {
    const auto& [sum, first, stride] = section;
    sum_elements(sum.quantizer, first, stride, sum.contributors, begin, n, buffer);
    if (sum.divisor == 1.0f) return buffer;
    if constexpr (on_avx512<Size, 1>) {
        // The reciprocal of a power of two is exact, so that a product with it has the quotient's bits, and is faster.
        const bool power_of_two = (float_bits(sum.divisor) & 0x007fffffu) == 0;
        if (power_of_two && sum.divisor >= 0x1p-126f && sum.divisor <= 0x1p126f) {
            multiply_in_vectors(buffer, n, quotient(1.0f, sum.divisor));
            return buffer;
        }
    }
    for (std::size_t i = 0; i != n; ++i) buffer[i] = quotient(buffer[i], sum.divisor);
    return buffer;
}

ZEROPP_DETAIL_INLINE_END

}  // namespace zeropp::detail
