#pragma once
/// \file
/// Sources of values for the host codec: a tensor, a difference of tensors, or a sum of messages. A source is
/// load(begin, n, buffer), which returns elements [begin, begin + n) of a section as floats: the whole section in
/// place, or in `buffer`.

#include <zeropp/codec/codec.hpp>
#include <zeropp/codec/host/blocks.hpp>
#include <zeropp/codec/host/elements.hpp>
#include <zeropp/codec/host/sums.hpp>
#include <zeropp/codec/host/target.hpp>
#include <zeropp/core/element.hpp>
#include <zeropp/core/math.hpp>
#include <zeropp/quantizer/quantizer.hpp>

#include <cstddef>
#include <type_traits>

namespace zeropp::detail {

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

ZEROPP_DETAIL_INLINE_END

}  // namespace zeropp::detail
