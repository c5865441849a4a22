#pragma once
/// \file
/// Blocks of integers over the range that is left without the two extreme elements of a block.

#include <zeropp/core/element.hpp>
#include <zeropp/quantizer/block_integer.hpp>
#include <zeropp/quantizer/integer_scheme.hpp>
#include <zeropp/quantizer/quantizer.hpp>
#include <zeropp/quantizer/scale.hpp>

#include <cstdint>
#include <limits>
#include <type_traits>

namespace zeropp {

/// Stores the smallest and the largest element of each block as a `Scale`, with their positions. The others become
/// `asymmetric` integers over their own range, which is much narrower in heavy-tailed data. A `positional_quantizer`.
///
/// Bits       2 to 4
/// BlockSize  a power of two from 8 to 65536
/// Scale      type of the stored step, minimum and two elements: half, bfloat16 or float
/// A block takes 10 bytes of parameters, 12 if positions need two bytes, 20 with float. It decodes to NaN in every
/// element if it holds NaN or Inf, or if `Scale` cannot hold an extreme, the range or the step.
/// Error      half a step; of the two extremes, their rounding to a `Scale`
/// Source     FlashCommunication V2 (arXiv 2508.03760), section 3
template <int Bits, int BlockSize, scale_type Scale = half>
struct spike_reserving {
    static_assert(Bits >= 2 && Bits <= 4, "spike_reserving: Bits must be from 2 to 4");

private:
    /// Quantizer of the elements between the extremes.
    using others = block_integer<Bits, BlockSize, asymmetric, Scale>;

public:
    static constexpr int block_size = BlockSize;
    static constexpr int code_bits = Bits;

    /// Wide enough for the block, and for a float's alignment: parameters have no padding.
    using position_type =
        std::conditional_t<BlockSize <= 256 && !std::is_same_v<Scale, float>, std::uint8_t, std::uint16_t>;

    struct params {
        typename others::params between;
        Scale low;
        Scale high;
        position_type low_at;
        position_type high_at;
    };
    static_assert(sizeof(params) == 4 * sizeof(Scale) + 2 * sizeof(position_type));

    /// The two smallest and the two largest elements, as integers that order like the floats (`asymmetric::stats`), and
    /// the positions of the outer ones. Of equal elements, the smallest is the first and the largest the last.
    struct stats {
        std::int32_t low = std::numeric_limits<std::int32_t>::max();
        std::int32_t second_low = std::numeric_limits<std::int32_t>::max();
        std::int32_t high = std::numeric_limits<std::int32_t>::min();
        std::int32_t second_high = std::numeric_limits<std::int32_t>::min();
        std::uint32_t low_at = std::numeric_limits<std::uint32_t>::max();
        std::uint32_t high_at = 0;

        constexpr ZEROPP_HOST_DEVICE void add(float x, std::uint32_t position) noexcept {
            const std::int32_t key = asymmetric::stats::ordered(float_bits(x));
            merge({key, stats{}.second_low, key, stats{}.second_high, position, position});
        }

        constexpr ZEROPP_HOST_DEVICE void merge(const stats& other) noexcept {
            // The second smallest of all is the larger of the two smallest, or one of the seconds.
            second_low = smaller(smaller(second_low, other.second_low), larger(low, other.low));
            second_high = larger(larger(second_high, other.second_high), smaller(high, other.high));
            const bool lower = other.low < low || (other.low == low && other.low_at < low_at);
            low_at = lower ? other.low_at : low_at;
            low = lower ? other.low : low;
            const bool higher = other.high > high || (other.high == high && other.high_at > high_at);
            high_at = higher ? other.high_at : high_at;
            high = higher ? other.high : high;
        }

    private:
        static constexpr ZEROPP_HOST_DEVICE std::int32_t smaller(std::int32_t a, std::int32_t b) noexcept {
            return a < b ? a : b;
        }
        static constexpr ZEROPP_HOST_DEVICE std::int32_t larger(std::int32_t a, std::int32_t b) noexcept {
            return a > b ? a : b;
        }
    };

    constexpr ZEROPP_HOST_DEVICE params fit(const stats& s) const noexcept {
        const Scale nan(quiet_nan);
        const params unfit{{nan, nan}, nan, nan, 0, 0};
        const Scale low(element_of(s.low));
        const Scale high(element_of(s.high));
        // Blocks of one or two elements have none between.
        const bool none = s.second_low > s.second_high;
        const auto between =
            others().fit(none ? asymmetric::stats{0, 0} : asymmetric::stats{s.second_low, s.second_high});
        if (!holds(low) || !holds(high) || !holds(between.scale)) return unfit;
        return {between, low, high, static_cast<position_type>(s.low_at), static_cast<position_type>(s.high_at)};
    }

    constexpr ZEROPP_HOST_DEVICE std::uint32_t encode(float x, const params& p, std::uint32_t) const noexcept {
        return others().encode(x, p.between);
    }

    constexpr ZEROPP_HOST_DEVICE float decode(std::uint32_t code, const params& p,
                                              std::uint32_t position) const noexcept {
        const float between = others().decode(code, p.between);
        const float not_low = position == p.high_at ? static_cast<float>(p.high) : between;
        return position == p.low_at ? static_cast<float>(p.low) : not_low;
    }

    /// "spike4:128", "spike2:32:bf16": a Scale other than half is spelt out.
    static constexpr short_text name() {
        short_text text("spike");
        text.append(Bits).append(":").append(BlockSize);
        if (!std::is_same_v<Scale, half>) text.append(":").append(element_traits<Scale>::name);
        return text;
    }

private:
    static constexpr ZEROPP_HOST_DEVICE float element_of(std::int32_t key) noexcept {
        return bits_float(static_cast<std::uint32_t>(asymmetric::stats::ordered(static_cast<std::uint32_t>(key))));
    }
    static constexpr ZEROPP_HOST_DEVICE bool holds(Scale s) noexcept { return is_finite(static_cast<float>(s)); }
};

static_assert(quantizer<spike_reserving<4, 128>> && positional_quantizer<spike_reserving<4, 128>>);

}  // namespace zeropp
