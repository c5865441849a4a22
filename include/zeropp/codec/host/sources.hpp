#pragma once
/// \file
/// Values that the host codec encodes: elements as floats, slots and their messages, and sources (a tensor, a
/// difference of tensors, or a sum of messages). A source is load(begin, n, buffer). It returns elements
/// [begin, begin + n) of a section as floats: the whole section in place, or in `buffer`.

#include <zeropp/codec/codec.hpp>
#include <zeropp/codec/host/avx512.hpp>
#include <zeropp/codec/host/blocks.hpp>
#include <zeropp/codec/host/rotation.hpp>
#include <zeropp/codec/host/share.hpp>
#include <zeropp/codec/host/sixteen_bits.hpp>
#include <zeropp/codec/host/sums.hpp>
#include <zeropp/codec/host/target.hpp>
#include <zeropp/core/element.hpp>
#include <zeropp/core/math.hpp>
#include <zeropp/layout/slices.hpp>
#include <zeropp/layout/wire_layout.hpp>
#include <zeropp/quantizer/abilities.hpp>
#include <zeropp/quantizer/quantizer.hpp>

#include <cstddef>
#include <type_traits>

namespace zeropp::detail {

ZEROPP_DETAIL_INLINE_BEGIN

/// to <- n elements as floats.
template <element T, class Size>
void load_elements(const T* from, Size n, float* to) {
#if ZEROPP_DETAIL_HAS_WIDE_TARGETS
    if constexpr (std::is_same_v<T, half> && avx512::serves<Size, avx512::lanes>) {
        if (avx512::floats_of_halves(from, n, to)) return;
    }
#endif
    for (std::size_t i = 0; i != n; ++i) to[i] = element_traits<T>::to_float(from[i]);
}

/// to <- n floats as elements.
template <element T, class Size>
void store_elements(const float* from, Size n, T* to) {
#if ZEROPP_DETAIL_HAS_WIDE_TARGETS
    if constexpr (std::is_same_v<T, half> && avx512::serves<Size, avx512::lanes>) {
        return avx512::halves_of_floats(from, n, to);
    }
    if constexpr (std::is_same_v<T, bfloat16> && avx512::serves<Size, 2 * avx512::lanes>) {
        if (avx512::bfloat16s_of_floats(from, n, to)) return;
    }
#endif
    for (std::size_t i = 0; i != n; ++i) to[i] = element_traits<T>::from_float(from[i]);
}

/// x[i] <- quotient(x[i], divisor), for n values.
template <class Size>
void divide(float* x, Size n, float divisor) {
    if (divisor == 1.0f) return;
#if ZEROPP_DETAIL_HAS_WIDE_TARGETS
    if constexpr (avx512::serves<Size, 1>) {
        // The reciprocal of a power of two is exact: its product has the quotient's bits and is ten times as fast.
        const bool exact = (float_bits(divisor) & 0x007fffffu) == 0 && divisor >= 0x1p-126f && divisor <= 0x1p126f;
        if (exact) return avx512::multiply(x, n, quotient(1.0f, divisor));
    }
#endif
    for (std::size_t i = 0; i != n; ++i) x[i] = quotient(x[i], divisor);
}

ZEROPP_DETAIL_INLINE_END

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

ZEROPP_DETAIL_INLINE_BEGIN

/// Source: elements of a tensor from `first` on.
template <element T>
struct tensor_elements {
    const T* first;

    template <class Size>
    const float* operator()(std::size_t begin, Size n, float* buffer) const {
        if constexpr (std::is_same_v<T, float>) {
            return first + begin;
        } else {
            load_elements(first + begin, n, buffer);
            return buffer;
        }
    }
};
template <element T>
tensor_elements<T> loader(const T* tensor, std::size_t offset) {
    return {tensor + offset};
}
template <class T, class Base>
auto loader(const difference<T*, Base*>& d, std::size_t offset) {
    return [=](std::size_t begin, auto n, float* buffer) -> const float* {
        const T* const slice = d.tensor + offset + begin;
        const Base* const base = d.base + offset + begin;
        for (std::size_t i = 0; i != n; ++i) {
            buffer[i] = element_traits<std::remove_const_t<T>>::to_float(slice[i]) -
                        finite_or_zero(element_traits<std::remove_const_t<Base>>::to_float(base[i]));
        }
        return buffer;
    };
}

/// Source: sums of a section over `contributors` messages, `stride` bytes apart, beginning with `first`.
template <quantizer From, class Mean>
auto loader(const From& from, const coded_section& first, std::size_t stride, int contributors, Mean mean) {
    return [=](std::size_t begin, auto n, float* buffer) -> const float* {
        sum_elements(from, first, stride, contributors, begin, n, buffer);
        if constexpr (std::is_same_v<Mean, divided_by>) {
            divide(buffer, n, mean.divisor);
        }
        return buffer;
    };
}

/// Values of one section: elements, rotated if Q rotates, plus residuals. `load` is a source (host/sources.hpp), called
/// twice for each element if messages have a scale.
template <quantizer Q, class Load, class Residuals>
struct section_values {
    Load load;
    Residuals residuals;

    template <class Size>
    const float* operator()(std::size_t begin, Size n, float* buffer) const {
        const float* const values = load(begin, n, buffer);
        if constexpr (rotating_quantizer<Q> || Residuals::any) {
            rotate<Q>(values, n, false, buffer);
            if constexpr (Residuals::any) residuals.add(begin, n, buffer);
            return buffer;
        } else {
            return values;
        }
    }
};

ZEROPP_DETAIL_INLINE_END

}  // namespace zeropp::detail
