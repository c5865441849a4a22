#pragma once
/// \file
/// Formats in which error feedback stores residuals.

#include <zeropp/core/element.hpp>
#include <zeropp/quantizer/block_integer.hpp>
#include <zeropp/quantizer/cast_to.hpp>

namespace zeropp {

/// Format of residuals: floats, 4 bytes for each element.
struct residuals_in_fp32 {
    template <quantizer Q>
    using storage = cast_to<float>;
};

/// Format of residuals: bfloat16, 2 bytes for each element.
struct residuals_in_bf16 {
    template <quantizer Q>
    using storage = cast_to<bfloat16>;
};

/// Format of residuals: INT8, in blocks as large as the quantizer's: 1 byte for each element and 4 for each block.
/// Rounding loses at most a 254th of a block's largest residual.
struct residuals_in_int8 {
    template <quantizer Q>
    using storage = block_integer<8, Q::block_size>;
};

}  // namespace zeropp
