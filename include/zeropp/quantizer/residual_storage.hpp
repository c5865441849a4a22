#pragma once
/// \file
/// What the residuals of error feedback are stored as.

#include <zeropp/core/element.hpp>
#include <zeropp/quantizer/block_integer.hpp>
#include <zeropp/quantizer/lossless.hpp>

namespace zeropp {

/// Floats: 4 bytes for each element.
struct residuals_in_fp32 {
    template <quantizer Q>
    using storage = lossless<float>;
};

/// bfloat16: 2 bytes for each element.
struct residuals_in_bf16 {
    template <quantizer Q>
    using storage = lossless<bfloat16>;
};

/// Blocks of INT8, as large as those of the quantizer whose residuals they are: 1 byte for each element and 4 for each
/// block. What this rounds away is a 254th of what would be lost without feedback.
struct residuals_in_int8 {
    template <quantizer Q>
    using storage = block_integer<8, Q::block_size>;
};

}  // namespace zeropp
