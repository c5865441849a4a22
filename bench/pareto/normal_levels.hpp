#pragma once
/// \file
/// Codes of two bits and fewer for elements that are distributed normally, as rotated ones are.

#include <zeropp/quantizer/abilities.hpp>
#include <zeropp/quantizer/integer_scheme.hpp>

#include <cstdint>

namespace pareto {

/// Each block becomes one of `Levels` values a scale apart, those that lose least of normal data, symmetric around
/// zero: two are a sign, three have a zero (and a code to spare), four are two magnitudes. The largest is a block's
/// scale, a power of 2^(1/4) in one byte, the best of `candidates` down from the block's absmax. `Unbiased` decodes to
/// more than that, so that of normal data nothing is lost on average, at the price of a larger error.
///
/// Blocks whose absmax is below 2^-49 decode to zeros, above 2^13.5 and with NaN or Inf to NaN.
/// Source  Lloyd (1982); Max (1960), table I; unbiased: EDEN (arXiv 2108.08842), MS-EDEN (arXiv 2601.22813)
template <int Levels, int Block, bool Unbiased = false>
struct normal_levels {
    static_assert(Levels >= 2 && Levels <= 4, "normal_levels: Levels must be from 2 to 4");

    static constexpr int block_size = Block;
    static constexpr int code_bits = Levels == 2 ? 1 : 2;
    static constexpr int candidates = 16;

    /// 0 for zeros, 255 for NaN, else the scale is 2^((power - 200) / 4).
    struct params {
        std::uint8_t power;
    };
    using stats = zeropp::symmetric::stats;

    constexpr params fit(const stats& s) const noexcept {
        const float absmax = zeropp::bits_float(s.absmax);
        if (!(absmax <= scale({254}))) return {255};
        const int exponent = static_cast<int>(s.absmax >> 23) - 127;
        int power = 4 * exponent + 200;
        while (power > 0 && power < 254 && scale({static_cast<std::uint8_t>(power)}) < absmax) ++power;
        return {static_cast<std::uint8_t>(power < 0 ? 0 : power)};
    }

    constexpr params candidate(const params& fitted, int k) const noexcept {
        const bool special = fitted.power <= k || fitted.power == 255;
        return {static_cast<std::uint8_t>(special ? fitted.power : fitted.power - k)};
    }

    /// The squared error as a part of the fitted scale's square: neither an element nor a level is above that.
    constexpr std::uint32_t error(float x, const params& p, const params& fitted) const noexcept {
        const float most = scale(fitted);
        const float units = most > 0.0f ? 0x1p15f / most : 0.0f;
        const float off = (magnitude(x) - level(outer(x, p), p)) * units;
        const float squared = off * off * (1.0f / Block);
        // Of a block that decodes to NaN it is none.
        return static_cast<std::uint32_t>(static_cast<std::int32_t>(squared < 0x1p30f ? squared : 0.0f));
    }

    constexpr std::uint32_t encode(float x, const params& p) const noexcept {
        const std::uint32_t sign = zeropp::float_bits(x) >> 31;
        const auto size = static_cast<std::uint32_t>(outer(x, p));
        return Levels == 2 ? sign : Levels == 3 ? size + (size & sign) : size + 2 * sign;
    }

    constexpr float decode(std::uint32_t code, const params& p) const noexcept {
        // Over what is left of normal data on average, 1 less the part of its energy that is lost.
        constexpr float lost = Levels == 2 ? 0.3634f : Levels == 3 ? 0.1902f : 0.1175f;
        constexpr float gain = Unbiased ? 1.0f / (1.0f - lost) : 1.0f;
        const bool minus = Levels == 3 ? code == 2 : code >> (code_bits - 1) != 0;
        const float size = level(Levels == 2 || (Levels == 3 ? code != 0 : (code & 1u) != 0), p) * gain;
        return minus ? -size : size;
    }

    /// "normal2:128", "normal2:128:unbiased"
    static constexpr zeropp::short_text name() {
        zeropp::short_text text("normal");
        text.append(Levels).append(":").append(Block);
        if (Unbiased) text.append(":unbiased");
        return text;
    }

private:
    /// As parts of the largest level: the other one, and where the largest begins to be the nearer one.
    static constexpr float inner = Levels == 3 ? 0.0f : 0.4528f / 1.510f;
    static constexpr float threshold = Levels == 2 ? 0.0f : (1.0f + inner) / 2;

    static constexpr float magnitude(float x) noexcept {
        return zeropp::bits_float(zeropp::float_bits(x) & 0x7fffffffu);
    }
    static constexpr bool outer(float x, const params& p) noexcept {
        return Levels == 2 || magnitude(x) > threshold * scale(p);
    }
    static constexpr float level(bool largest, const params& p) noexcept { return scale(p) * (largest ? 1.0f : inner); }

    static constexpr float scale(const params& p) noexcept { return scales.of[p.power]; }
    static constexpr struct table {
        float of[256] = {};
        constexpr table() {
            constexpr float roots[] = {1.0f, 1.18920712f, 1.41421356f, 1.68179283f};
            for (std::uint32_t power = 1; power != 255; ++power) {
                of[power] = zeropp::bits_float((power / 4 + 77) << 23) * roots[power % 4];
            }
            of[255] = zeropp::quiet_nan;
        }
    } scales{};
};

static_assert(zeropp::searching_quantizer<normal_levels<2, 128>>);

}  // namespace pareto
