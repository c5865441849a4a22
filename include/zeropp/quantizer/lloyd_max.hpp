#pragma once
/// \file
/// Codes of one and two bits for normally distributed elements, such as rotated ones.

#include <zeropp/core/math.hpp>
#include <zeropp/quantizer/integer_scheme.hpp>
#include <zeropp/quantizer/quantizer.hpp>

#include <cstdint>
#include <type_traits>

namespace zeropp {

/// Levels of least squared error, each the mean of the elements rounded to it. A decoded block is smaller, by the part
/// of its energy that is lost.
struct least_error {};

/// Levels of `least_error` enlarged by the loss of normal data: nothing is lost on average, but the error is larger.
/// For values that add up over steps, such as differences of weights.
struct unbiased {};

/// Each block of `BlockSize` elements becomes codes of `Levels` values and a scale of one byte.
///
/// Levels     2: a sign. 3: with zero, five codes to a byte (a `ternary_quantizer`). 4: two magnitudes
/// BlockSize  a power of two from 8 to 65536
/// Bias       `least_error` or `unbiased`
/// Levels and thresholds lose least of a normal distribution around zero. The scale, the largest level of
/// `least_error`, is a power of 2^(1/4): of the smallest not below the absmax and the 15 below it, the one of least
/// squared error. A block with NaN, Inf or an absmax above 2^23.5 decodes to NaN in every element, one with an absmax
/// up to 2^-40 to zeros.
/// Use        on rotated elements: `hadamard<lloyd_max<2, 128, unbiased>, 128>`
/// Source     Lloyd (1982); Max, Quantizing for Minimum Distortion (1960), table I; for `unbiased` EDEN (arXiv
///            2108.08842), and MS-EDEN (arXiv 2601.22813)
template <int Levels, int BlockSize, class Bias = least_error>
struct lloyd_max {
    static_assert(Levels >= 2 && Levels <= 4, "lloyd_max: Levels must be from 2 to 4");
    static_assert(BlockSize >= 8 && BlockSize <= 65536 && (BlockSize & (BlockSize - 1)) == 0,
                  "lloyd_max: BlockSize must be a power of two from 8 to 65536");
    static_assert(std::is_same_v<Bias, least_error> || std::is_same_v<Bias, unbiased>,
                  "lloyd_max: Bias must be least_error or unbiased");

    static constexpr int block_size = BlockSize;
    static constexpr int code_bits = Levels == 2 ? 1 : 2;
    static constexpr bool ternary = Levels == 3;
    static constexpr int candidates = 16;

    using stats = symmetric::stats;
    /// The scale is 2^((power - 160) / 4), 0 for `zeros`, or NaN for `not_a_number`.
    struct params {
        std::uint8_t power;
    };

    constexpr ZEROPP_HOST_DEVICE params fit(const stats& s) const noexcept {
        if (s.absmax > float_bits(scale_of(largest))) return {not_a_number};
        const float mantissa = bits_float((s.absmax & 0x007fffffu) | 0x3f800000u);
        int power = 4 * (static_cast<int>(s.absmax >> 23) - 87);
        for (int root = 0; root != 4; ++root) power += mantissa > root_of(root) ? 1 : 0;
        return {static_cast<std::uint8_t>(power < smallest ? zeros : power)};
    }

    /// The scale k quarters of an octave below the fitted one, or the fitted one if none is so low.
    constexpr ZEROPP_HOST_DEVICE params candidate(const params& fitted, int k) const noexcept {
        const bool kept = fitted.power <= k || fitted.power == not_a_number;
        return {static_cast<std::uint8_t>(kept ? fitted.power : fitted.power - k)};
    }

    /// The squared error relative to the fitted scale's square, which neither an element nor a level exceeds.
    constexpr ZEROPP_HOST_DEVICE std::uint32_t error(float x, const params& p, const params& fitted) const noexcept {
        const float most = scale_of(fitted.power);
        const float units = quotient(0x1p15f, most > 0.0f ? most : 1.0f);
        const float off = product(magnitude_of(x) - level(is_outer(x, p), p), units);
        const float squared = product(product(off, off), 1.0f / BlockSize);
        // 0 in a block that decodes to NaN.
        return static_cast<std::uint32_t>(static_cast<std::int32_t>(squared < 0x1p31f / BlockSize ? squared : 0.0f));
    }

    constexpr ZEROPP_HOST_DEVICE std::uint32_t encode(float x, const params& p) const noexcept {
        // The signs of zeros and NaNs must not reach the message.
        const std::uint32_t minus = x < 0.0f ? 1u : 0u;
        const std::uint32_t outer = is_outer(x, p) ? 1u : 0u;
        const std::uint32_t code = Levels == 2 ? minus : Levels == 3 ? outer + (outer & minus) : outer + 2 * minus;
        return p.power == zeros || p.power == not_a_number ? 0u : code;
    }

    constexpr ZEROPP_HOST_DEVICE float decode(std::uint32_t code, const params& p) const noexcept {
        const bool minus = Levels == 3 ? code == 2 : code >> (code_bits - 1) != 0;
        const bool outer = Levels == 2 || (Levels == 3 ? code != 0 : (code & 1u) != 0);
        const float size = product(level(outer, p), gain);
        return minus ? -size : size;
    }

    /// At least the largest magnitude in a block that `p` was found for.
    constexpr ZEROPP_HOST_DEVICE float extent(const params& p) const noexcept {
        // The last candidate is 2^3.75 below the first. A block that decodes to zeros is not above the smallest scale.
        constexpr float clipped = 16.0f;
        return scale_of(p.power == zeros ? smallest : p.power) * clipped;
    }

    /// The larger of |x| and the largest level.
    constexpr ZEROPP_HOST_DEVICE float error_bound(float x, const params& p) const noexcept {
        const float outermost = product(level(true, p), gain);
        const float magnitude = magnitude_of(x);
        return magnitude > outermost ? magnitude : outermost;
    }

    /// "lloyd2:128", "lloyd4:128:unbiased"
    static constexpr short_text name() {
        short_text text("lloyd");
        text.append(Levels).append(":").append(BlockSize);
        if (std::is_same_v<Bias, unbiased>) text.append(":unbiased");
        return text;
    }

private:
    static constexpr std::uint8_t zeros = 0;
    static constexpr std::uint8_t smallest = 1;
    static constexpr std::uint8_t largest = 254;
    static constexpr std::uint8_t not_a_number = 255;

    /// Relative to the scale: the level nearest to zero, and the threshold of the largest level.
    static constexpr float inner = Levels == 3 ? 0.0f : 0.4528f / 1.510f;
    static constexpr float threshold = Levels == 2 ? 0.0f : (1.0f + inner) / 2;
    /// Lost part of a normal distribution's energy, and the factor of levels that makes up for it.
    static constexpr float lost = Levels == 2 ? 0.3634f : Levels == 3 ? 0.1902f : 0.1175f;
    static constexpr float gain = std::is_same_v<Bias, unbiased> ? 1.0f / (1.0f - lost) : 1.0f;

    /// 2^(i / 4).
    static constexpr ZEROPP_HOST_DEVICE float root_of(int i) noexcept {
        return i == 0 ? 1.0f : i == 1 ? 1.18920712f : i == 2 ? 1.41421356f : 1.68179283f;
    }

    static constexpr ZEROPP_HOST_DEVICE float scale_of(std::uint8_t power) noexcept {
        const float finite = product(bits_float((power / 4u + 87u) << 23), root_of(power % 4));
        return power == zeros ? 0.0f : power == not_a_number ? quiet_nan : finite;
    }

    static constexpr ZEROPP_HOST_DEVICE float magnitude_of(float x) noexcept {
        return bits_float(float_bits(x) & 0x7fffffffu);
    }

    static constexpr ZEROPP_HOST_DEVICE bool is_outer(float x, const params& p) noexcept {
        return Levels == 2 || magnitude_of(x) > product(threshold, scale_of(p.power));
    }

    static constexpr ZEROPP_HOST_DEVICE float level(bool outer, const params& p) noexcept {
        return product(outer ? 1.0f : inner, scale_of(p.power));
    }
};

static_assert(searching_quantizer<lloyd_max<2, 128>> && bounded_quantizer<lloyd_max<4, 128, unbiased>>);

}  // namespace zeropp
