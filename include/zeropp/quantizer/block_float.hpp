#pragma once
/// \file
/// Blocks of small floats with a common scale: FP8, the microscaling formats (MX).

#include <zeropp/core/element.hpp>
#include <zeropp/quantizer/integer_scheme.hpp>
#include <zeropp/quantizer/quantizer.hpp>
#include <zeropp/quantizer/scale.hpp>
#include <zeropp/quantizer/small_float.hpp>

#include <concepts>
#include <cstdint>

namespace zeropp {

/// Each block of `BlockSize` elements becomes floats in `Format` and a scale.
///
/// Format     `e4m3`, `e5m2`, `e2m3`, `e3m2` or `e2m1`
/// BlockSize  a power of two from 8 to 65536
/// Scale      type of stored scales. float, half or bfloat16: the scale is the absmax over the format's largest value,
///            rounded up, and clips nothing. `e8m0`: the scale is a power of two that gives the absmax the format's
///            largest exponent, and clips by up to an eighth (`e2m3`: a sixteenth, `e2m1`: a quarter)
/// A code is x * (1 / scale) in float, rounded to nearest even. A block with NaN, Inf or a scale beyond `Scale` decodes
/// to NaN in every element. Half cannot hold the scale of an absmax over 65504 times the format's largest value;
/// bfloat16, of an absmax within 1 % of the largest float. Nonzero scales are at least 2^-126 (half: 2^-24, e8m0:
/// 2^-127).
/// Source     OCP Microscaling Formats (MX) 1.0, sections 5 and 6.3, for `e8m0`
template <class Format, int BlockSize, class Scale = float>
    requires(scale_type<Scale> || std::same_as<Scale, e8m0>)
struct block_float {
    static_assert(BlockSize >= 8 && BlockSize <= 65536 && (BlockSize & (BlockSize - 1)) == 0,
                  "block_float: BlockSize must be a power of two from 8 to 65536");

    static constexpr int block_size = BlockSize;
    static constexpr int code_bits = Format::bits;

    /// Float format of the codes.
    using format = Format;
    using stats = symmetric::stats;
    struct params {
        Scale scale;
    };

    constexpr ZEROPP_HOST_DEVICE params fit(const stats& s) const noexcept {
        if constexpr (std::same_as<Scale, e8m0>) {
            constexpr auto largest_exponent = static_cast<std::uint32_t>(Format::largest_exponent);
            const std::uint32_t exponent = s.absmax >> 23;
            const std::uint32_t power = exponent > largest_exponent ? exponent - largest_exponent : 0u;
            return {e8m0{static_cast<std::uint8_t>(s.absmax >= infinity_bits ? 0xffu : power)}};
        } else {
            if (s.absmax >= infinity_bits) return {Scale(quiet_nan)};
            return {stored_step<Scale>(bits_float(s.absmax), Format::largest)};
        }
    }

    constexpr ZEROPP_HOST_DEVICE std::uint32_t encode(float x, const params& p) const noexcept {
        // The scale is NaN in a block that decodes to NaN. The sign of a NaN must not reach the message.
        const std::uint32_t kept = is_finite(multiplier(p)) ? 0xffffffffu : 0u;
        return Format::encode(x * reciprocal(p)) & kept;
    }

    constexpr ZEROPP_HOST_DEVICE float decode(std::uint32_t code, const params& p) const noexcept {
        return product(Format::decode(code), multiplier(p));
    }

    /// The block's scale, by which `decode` multiplies the value of a code.
    constexpr ZEROPP_HOST_DEVICE float multiplier(const params& p) const noexcept {
        return static_cast<float>(p.scale);
    }

    /// Upper bound of the magnitudes in a block that the parameters `p` were fitted to.
    constexpr ZEROPP_HOST_DEVICE float extent(const params& p) const noexcept {
        constexpr float beyond = bits_float((float_bits(Format::largest) & infinity_bits) + (1u << 23));
        return (std::same_as<Scale, e8m0> ? beyond : Format::largest) * static_cast<float>(p.scale);
    }

    /// Bound of |decode(encode(x)) - x|: half a unit in the last place of x in `Format`, or the clipped part of x. Adds
    /// 2^-21 of |x| for the rounding of float arithmetic, and the last place of denormals.
    constexpr ZEROPP_HOST_DEVICE float error_bound(float x, const params& p) const noexcept {
        const float magnitude = x < 0 ? -x : x;
        return Format::error_bound(magnitude * reciprocal(p)) * multiplier(p) + magnitude * 0x1p-21f + 0x1p-149f;
    }

    /// The quantizer's name, as "fp8_e4m3:128", "fp8_e5m2:128:fp16"; with `e8m0` and blocks of 32 "mxfp8_e4m3",
    /// "mxfp4".
    static constexpr short_text name() {
        constexpr bool microscaling = std::same_as<Scale, e8m0>;
        short_text text(microscaling ? "mxfp" : "fp");
        text.append(code_bits);
        if (!microscaling || code_bits != 4) text.append("_").append(Format::name());
        if (!microscaling || BlockSize != 32) text.append(":").append(BlockSize);
        if constexpr (!microscaling && !std::same_as<Scale, float>) {
            text.append(":").append(element_traits<Scale>::name);
        }
        return text;
    }

private:
    /// 1 / scale, or 0 if the scale is 0. The division is not in a branch, so that compilers hoist it out of loops.
    static constexpr ZEROPP_HOST_DEVICE float reciprocal(const params& p) noexcept {
        const auto scale = static_cast<float>(p.scale);
        const bool extent = scale != 0;
        const float inverse = quotient(1.0f, extent ? scale : 1.0f);
        return extent ? inverse : 0.0f;
    }
};

template <class Format, int BlockSize, class Scale>
inline constexpr bool has_float_arithmetic<block_float<Format, BlockSize, Scale>> = true;

/// Quantizer of the OCP's format MXFP8: blocks of 32 floats of 8 bits, with a power of two as their scale.
template <class Format>
    requires(Format::bits == 8)
using mxfp8 = block_float<Format, 32, e8m0>;
/// Quantizer of the OCP's format MXFP6: blocks of 32 floats of 6 bits, with a power of two as their scale.
template <class Format>
    requires(Format::bits == 6)
using mxfp6 = block_float<Format, 32, e8m0>;
/// Quantizer of the OCP's format MXFP4: blocks of 32 floats of 4 bits, with a power of two as their scale.
using mxfp4 = block_float<e2m1, 32, e8m0>;

static_assert(bounded_quantizer<block_float<e4m3, 128>> && bounded_quantizer<block_float<e5m2, 128, half>> &&
              bounded_quantizer<mxfp8<e5m2>> && bounded_quantizer<mxfp6<e2m3>> && bounded_quantizer<mxfp4>);

}  // namespace zeropp
