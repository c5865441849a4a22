#pragma once
/// \file
/// Blocks of integers with a common scale: the quantizer of ZeRO++.

#include <zeropp/core/element.hpp>
#include <zeropp/quantizer/integer_scheme.hpp>
#include <zeropp/quantizer/quantizer.hpp>

#include <concepts>
#include <cstdint>
#include <type_traits>

namespace zeropp {

/// Each block of `BlockSize` elements becomes integers of `Bits` bits and a scale; with `asymmetric`, also a minimum.
///
/// Bits       2 to 8. Codes are packed densely: two of 4 bits take a byte, four of 6 bits three bytes
/// BlockSize  a power of two from 8 to 65536. Smaller blocks cost more scales and lose less accuracy
/// Scheme     `symmetric`, `signed_absmax` or `asymmetric`
/// Scale      type of stored scales: float, half or bfloat16
/// A code is x * (1 / step) in float, rounded to nearest even; for `asymmetric`, x minus the minimum takes the place of
/// x. A block with NaN, Inf, or a scale or minimum beyond `Scale` decodes to NaN in every element. With `symmetric`,
/// half cannot hold the scale of an absmax over 65504 * (2^(Bits-1) - 1); bfloat16, of one within 1 % of the largest
/// float. Nonzero steps are at least 2^-126 (half: 2^-24). Elements below half such a step decode to zero
/// (`asymmetric`: to the minimum).
/// Source     ZeRO++ (arXiv 2306.10209), section 3.1
template <int Bits, int BlockSize, class Scheme = symmetric, scale_type Scale = float>
struct block_integer {
    static_assert(Bits >= 2 && Bits <= 8, "block_integer: Bits must be from 2 to 8");
    static_assert(BlockSize >= 8 && BlockSize <= 65536 && (BlockSize & (BlockSize - 1)) == 0,
                  "block_integer: BlockSize must be a power of two from 8 to 65536");

    static constexpr int block_size = BlockSize;
    static constexpr int code_bits = Bits;

    using stats = typename Scheme::stats;
    using params = typename Scheme::template params<Scale>;

    constexpr ZEROPP_HOST_DEVICE params fit(const stats& s) const noexcept {
        return Scheme::template fit<Bits, Scale>(s);
    }

    /// The code nearest to x. With a `noise`, from (-1/2, 1/2): the code nearest to x plus `noise` steps.
    template <std::same_as<float>... Noise>
    constexpr ZEROPP_HOST_DEVICE std::uint32_t encode(float x, const params& p, Noise... noise) const noexcept {
        return Scheme::template encode<Bits, Scale>(x, p, noise...);
    }

    constexpr ZEROPP_HOST_DEVICE float decode(std::uint32_t code, const params& p) const noexcept {
        return Scheme::template decode<Bits, Scale>(code, p);
    }

    /// The step, by which `decode` multiplies a code. Only in schemes without a minimum.
    constexpr ZEROPP_HOST_DEVICE float multiplier(const params& p) const noexcept
        requires(Scheme::multiplies)
    {
        return static_cast<float>(p.scale);
    }
    static constexpr std::int32_t highest_code = (1 << (Bits - 1)) - 1;
    static constexpr bool reaches_above = Scheme::reaches_above;

    /// Distance between the values of neighbouring codes.
    constexpr ZEROPP_HOST_DEVICE float spacing(const params& p) const noexcept {
        return Scheme::template step<Scale>(p);
    }

    /// Upper bound of the magnitudes in a block that the parameters `p` were fitted to.
    constexpr ZEROPP_HOST_DEVICE float extent(const params& p) const noexcept {
        // The scheme's lowest and highest codes are among these four, whether codes are signed or unsigned.
        constexpr std::uint32_t half_way = 1u << (Bits - 1);
        float most = 0;
        for (const std::uint32_t code : {0u, half_way - 1, half_way, 2 * half_way - 1}) {
            const float end = decode(code, p);
            most = end > most ? end : -end > most ? -end : most;
        }
        return most;
    }

    /// Bound of |decode(encode(x)) - x|: half a step, or a whole step for `signed_absmax`. Adds 2^-12 of that and 2^-22
    /// of |x| for the rounding of float arithmetic.
    constexpr ZEROPP_HOST_DEVICE float error_bound(float x, const params& p) const noexcept {
        const float magnitude = x < 0 ? -x : x;
        return spacing(p) * Scheme::steps_off * (1.0f + 0x1p-12f) + magnitude * 0x1p-22f;
    }

    /// The quantizer's name, as "int8:256", "int4:128:signed:fp16": without a default scheme or scale.
    static constexpr short_text name() {
        short_text text("int");
        text.append(Bits).append(":").append(BlockSize);
        if (!std::is_same_v<Scheme, symmetric>) text.append(":").append(Scheme::name);
        if (!std::is_same_v<Scale, float>) text.append(":").append(element_traits<Scale>::name);
        return text;
    }
};

template <int Bits, int BlockSize, class Scheme, scale_type Scale>
inline constexpr bool has_integer_arithmetic<block_integer<Bits, BlockSize, Scheme, Scale>> = Scheme::multiplies;

static_assert(integer_quantizer<block_integer<8, 256>> && !integer_quantizer<block_integer<8, 256, asymmetric>>);
static_assert(quantizer<block_integer<8, 256>> && bounded_quantizer<block_integer<4, 128, asymmetric, half>>);

}  // namespace zeropp
