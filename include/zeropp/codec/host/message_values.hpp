#pragma once
/// \file
/// Values that a message encodes: a source's values, rotated if the quantizer rotates, plus residuals.

#include <zeropp/codec/host/rotation.hpp>
#include <zeropp/codec/host/target.hpp>
#include <zeropp/quantizer/abilities.hpp>

#include <cstddef>

namespace zeropp::detail {

ZEROPP_DETAIL_INLINE_BEGIN

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
