#pragma once
/// \file
/// What a message encodes: the values of a source, in the domain of its quantizer, with what was lost of them before.

#include <zeropp/codec/host/rotation.hpp>
#include <zeropp/codec/host/target.hpp>
#include <zeropp/quantizer/abilities.hpp>

#include <cstddef>

namespace zeropp::detail {

ZEROPP_DETAIL_INLINE_BEGIN

/// What a message encodes of one section: its elements, rotated, with what was lost of them before. load(begin, n,
/// buffer) returns elements [begin, begin + n) as floats: where they are, or in `buffer`, but for all elements of the
/// section the same; twice where messages have a scale.
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
