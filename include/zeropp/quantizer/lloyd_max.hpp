#pragma once
/// \file
/// The quantizer with codes of one and two bits for normally distributed elements, such as rotated ones.

#include <zeropp/core/math.hpp>
#include <zeropp/quantizer/integer_scheme.hpp>
#include <zeropp/quantizer/quantizer.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>

namespace zeropp {

/// Tag of `lloyd_max`: decoded values, or levels, of least squared error for normally distributed elements. On average,
/// each is the mean of the elements rounded to it, and a decoded block has less energy, by the squared error.
struct least_error {};

/// Tag of `lloyd_max`: levels of least squared error, enlarged to make up for the energy that normally distributed
/// elements lose. So nothing is lost on average, but the error is larger. For values that add up over steps, such as
/// differences of weights.
struct unbiased {};

namespace detail {

/// The least magnitude of `Levels` decoded values for normally distributed elements, relative to the largest one.
template <int Levels>
inline constexpr float inner_level = Levels == 2   ? 1.0f
                                     : Levels == 3 ? 0.0f
                                                   : 0.4528f / 1.510f;

/// Factors that choose a block's scale. `of[i][k]` multiplies sum i of the block's magnitudes (`lloyd_max::sums`). The
/// total of the products is half of the squared error that scale k saves against a block decoded to zeros.
template <int Levels>
struct gain_table {
    /// Number of scales to choose from, each 2^(1/4) times the next one; the first is the largest.
    static constexpr int candidates = 16;
    /// Number of sums over a block: of 1, of magnitudes and, unless codes are only signs, of maxima with five limits.
    static constexpr int terms = Levels == 2 ? 2 : 7;

    float of[std::size_t{terms}][std::size_t{candidates}] = {};

    /// The limit of sum i, from i = 2 on, in units of 2^-15 of the largest scale: that sum is of max(magnitude, limit).
    static constexpr ZEROPP_HOST_DEVICE std::int32_t limit(int i) noexcept {
        return (i == 2 ? 36 : i == 3 ? 21 : i == 4 ? 17 : i == 5 ? 9 : 7) << 9;
    }

    /// Fills the factors of each scale s. Levels s and inner * s of n elements save this squared error against zeros:
    ///   2 (1 - inner) s R(t) + 2 inner s R(0) - n (inner s)^2
    /// R(t) is the sum of max(0, |x| - t), at the threshold t = (1 + inner) s / 2. R is known at 0, at each `limit(i)`,
    /// and at the largest scale: R is 0 there, since no |x| is larger. Elsewhere the cubic polynomial through four
    /// neighbouring points stands for R.
    constexpr gain_table() {
        const auto inner = static_cast<double>(inner_level<Levels>);
        double s = 1.0;
        for (int k = 0; k != candidates; ++k, s /= 1.189207115002721) {
            of[0][k] = static_cast<float>(-0x1p14 * inner * s * inner * s);
            of[1][k] = static_cast<float>(inner * s);
            if constexpr (terms > 2) {
                // nodes[i] is the limit of sum i + 1. The first node is the largest scale, the last is 0.
                double nodes[std::size_t{terms}] = {1.0};
                for (int i = 2; i != terms; ++i) nodes[i - 1] = limit(i) * 0x1p-15;
                const double t = s * (1.0 + inner) / 2;
                int first = 0;
                while (first + 4 != terms && nodes[first + 2] >= t) ++first;
                for (int i = first; i != first + 4; ++i) {
                    double share = (1.0 - inner) * s;
                    for (int j = first; j != first + 4; ++j) {
                        if (j != i) share *= (t - nodes[j]) / (nodes[i] - nodes[j]);
                    }
                    if (i != 0) of[i + 1 == terms ? 1 : i + 1][k] += static_cast<float>(share);
                }
            }
        }
    }
};
template <int Levels>
inline constexpr gain_table<Levels> gains;

}  // namespace detail

/// Each block of `BlockSize` elements becomes codes of `Levels` values and a scale of one byte.
///
/// Levels     2: a sign. 3: with zero, five codes to a byte (a `ternary_quantizer`). 4: two magnitudes
/// BlockSize  a power of two from 8 to 65536
/// Bias       `least_error` or `unbiased`
/// Levels and thresholds have the least squared error for a normal distribution around zero. The scale is the largest
/// level of `least_error`, and a power of 2^(1/4). Candidates are the smallest power not below the absmax, and the 15
/// powers below that. `refit` takes the candidate of least squared error, by an interpolation. A block with NaN, Inf or
/// an absmax above 2^23.5 decodes to NaN in every element. A block with an absmax up to 2^-40 decodes to zeros.
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

private:
    using table = detail::gain_table<Levels>;
    static constexpr int candidates = table::candidates;
    static constexpr int terms = table::terms;

public:
    using stats = symmetric::stats;
    /// A block's stored scale: 2^((power - 160) / 4), but 0 for power 0 and NaN for power 255.
    struct params {
        std::uint8_t power;
    };

    constexpr ZEROPP_HOST_DEVICE params fit(const stats& s) const noexcept {
        if (s.absmax > float_bits(scale_of(largest))) return {not_a_number};
        const std::uint32_t mantissa = s.absmax & 0x007fffffu;
        int power = 4 * (static_cast<int>(s.absmax >> 23) - 87);
        for (std::uint32_t root = 0; root != 4; ++root) power += mantissa > mantissa_of(root) ? 1 : 0;
        return {static_cast<std::uint8_t>(power < smallest ? zeros : power)};
    }

    /// Sums over a block's elements: of 1, of |x| and, unless there are 2 levels, of max(|x|, limit) for five limits.
    /// Here |x| is in units of 2^-15 of the fitted scale.
    struct sums {
        std::uint32_t of[std::size_t{terms}] = {};

        constexpr ZEROPP_HOST_DEVICE void add(float x, const params& fitted) noexcept {
            // Bits of the fitted scale; 0 in a block that decodes to NaN.
            const std::uint32_t most = float_bits(scale_of(fitted.power)) & ~all_if(fitted.power == not_a_number);
            const std::uint32_t magnitude = float_bits(x) & 0x7fffffffu;
            const std::uint32_t bounded = magnitude < most ? magnitude : most;
            const float units = quotient(0x1p15f, bits_float(most | (all_if(most == 0) & float_bits(1.0f))));
            const auto size = static_cast<std::int32_t>(product(bits_float(bounded), units));
            of[0] += 1u;
            of[1] += static_cast<std::uint32_t>(size);
            // Not a loop, in which GCC would look for vectors before it unrolls the loop.
            [&]<int... I>(std::integer_sequence<int, I...>) {
                ((of[I + 2] += static_cast<std::uint32_t>(size > table::limit(I + 2) ? size : table::limit(I + 2))),
                 ...);
            }(std::make_integer_sequence<int, terms - 2>());
        }
        constexpr ZEROPP_HOST_DEVICE void merge(const sums& other) noexcept {
            for (int i = 0; i != terms; ++i) of[i] += other.of[i];
        }
    };

    /// The scale of least squared error, by an interpolation, among the fitted scale and the 15 below that. For 2
    /// levels the interpolation is exact. For 3 and 4 levels, the error is near the least in means over blocks, and has
    /// no bound in a single block (docs/concepts/quantizer.md).
    constexpr ZEROPP_HOST_DEVICE params refit(const params& fitted, const sums& s) const noexcept {
#if defined(__CUDA_ARCH__)
        constexpr auto gains = detail::gains<Levels>;
#else
        const auto& gains = detail::gains<Levels>;
#endif
        float sum[std::size_t{terms}] = {};
        for (int i = 0; i != terms; ++i)
            sum[i] = static_cast<float>(s.of[i] - s.of[0] * static_cast<std::uint32_t>(i < 2 ? 0 : table::limit(i)));
        // The largest gain, as an integer that orders like the gain, with candidates - 1 - k, for scale k, in the low
        // bits.
        std::int32_t most = smallest_int;
        for (int k = 0; k != candidates; ++k) {
            const float saved = [&]<int... I>(std::integer_sequence<int, I...>) {
                return (product(gains.of[I][k], sum[I]) + ...);
            }(std::make_integer_sequence<int, terms>());
            const std::int32_t key =
                (asymmetric::stats::ordered(float_bits(saved)) & -candidates) | (candidates - 1 - k);
            most = key > most ? key : most;
        }
        const int lower = fitted.power - (candidates - 1 - (most & (candidates - 1)));
        const bool kept = fitted.power == zeros || fitted.power == not_a_number;
        return {kept ? fitted.power : static_cast<std::uint8_t>(lower < smallest ? smallest : lower)};
    }

    constexpr ZEROPP_HOST_DEVICE std::uint32_t encode(float x, const params& p) const noexcept {
        // Magnitudes are compared as integers. In a block that decodes to zeros or NaN, no magnitude is above `lowest`
        // or `middle`. The signs of zeros and NaNs must not reach the message.
        const std::uint32_t none = (all_if(p.power == zeros) | all_if(p.power == not_a_number)) & 0x7fffffffu;
        const auto lowest = static_cast<std::int32_t>(none);
        const auto middle = static_cast<std::int32_t>(none | float_bits(product(threshold, scale_of(p.power))));
        const auto magnitude = static_cast<std::int32_t>(float_bits(x) & 0x7fffffffu);
        const std::uint32_t minus = float_bits(x) >> 31 & (magnitude > lowest ? 1u : 0u);
        const std::uint32_t outer = magnitude > middle ? 1u : 0u;
        return Levels == 2 ? minus : Levels == 3 ? outer + (outer & minus) : outer + 2 * minus;
    }

    constexpr ZEROPP_HOST_DEVICE float decode(std::uint32_t code, const params& p) const noexcept {
        const std::uint32_t minus = Levels == 3 ? code >> 1 : code >> (code_bits - 1);
        const std::uint32_t outer = all_if(Levels == 2 || (Levels == 3 ? code != 0 : (code & 1u) != 0));
        const std::uint32_t large = float_bits(product(level(true, p), gain));
        const std::uint32_t small = float_bits(product(level(false, p), gain));
        return bits_float(((large & outer) | (small & ~outer)) | minus << 31);
    }

    /// Upper bound of the magnitudes in a block that the parameters `p` were found for.
    constexpr ZEROPP_HOST_DEVICE float extent(const params& p) const noexcept {
        // Candidates differ by a factor of up to 2^3.75. A block that decodes to zeros is below the smallest scale.
        constexpr float clipped = 16.0f;
        return scale_of(p.power == zeros ? smallest : p.power) * clipped;
    }

    /// Bound of |decode(encode(x)) - x|: the larger of |x| and the largest level.
    constexpr ZEROPP_HOST_DEVICE float error_bound(float x, const params& p) const noexcept {
        const float outermost = product(level(true, p), gain);
        const float magnitude = x < 0 ? -x : x;
        return magnitude > outermost ? magnitude : outermost;
    }

    /// The quantizer's name, as "lloyd2:128" or "lloyd4:128:unbiased".
    static constexpr short_text name() {
        short_text text("lloyd");
        text.append(Levels).append(":").append(BlockSize);
        if (std::is_same_v<Bias, unbiased>) text.append(":unbiased");
        return text;
    }

private:
    static constexpr std::uint8_t zeros = 0;           // power of a block that decodes to zeros
    static constexpr std::uint8_t smallest = 1;        // power of the smallest scale, 2^-39.75
    static constexpr std::uint8_t largest = 254;       // power of the largest scale, 2^23.5
    static constexpr std::uint8_t not_a_number = 255;  // power of a block that decodes to NaN
    /// The smallest integer, as a constant because device code may not call `min`.
    static constexpr std::int32_t smallest_int = std::numeric_limits<std::int32_t>::min();

    /// The least magnitude of decoded values, relative to the scale.
    static constexpr float inner = detail::inner_level<Levels>;
    /// The magnitude above which elements decode to the largest magnitude, relative to the scale.
    static constexpr float threshold = Levels == 2 ? 0.0f : (1.0f + inner) / 2;
    /// The part of a normal distribution's energy that rounding to levels of least squared error loses.
    static constexpr float lost = Levels == 2 ? 0.3634f : Levels == 3 ? 0.1902f : 0.1175f;
    /// The factor by which decoded values are enlarged, so that on average no energy is lost; 1 for `least_error`.
    static constexpr float gain = std::is_same_v<Bias, unbiased> ? 1.0f / (1.0f - lost) : 1.0f;

    /// All bits set if `condition`, otherwise none. A conditional would become a branch, and not be hoisted or
    /// vectorised.
    static constexpr ZEROPP_HOST_DEVICE std::uint32_t all_if(bool condition) noexcept {
        return 0u - static_cast<std::uint32_t>(condition);
    }

    /// Mantissa bits of the float 2^(i / 4), for i from 0 to 3.
    static constexpr ZEROPP_HOST_DEVICE std::uint32_t mantissa_of(std::uint32_t i) noexcept {
        return (all_if(i == 1) & 0x1837f0u) | (all_if(i == 2) & 0x3504f3u) | (all_if(i == 3) & 0x5744fdu);
    }

    static constexpr ZEROPP_HOST_DEVICE float scale_of(std::uint32_t power) noexcept {
        const std::uint32_t finite = (power / 4u + 87u) << 23 | mantissa_of(power % 4u);
        const std::uint32_t none = all_if(power == zeros) | all_if(power == not_a_number);
        return bits_float((finite & ~none) | (all_if(power == not_a_number) & float_bits(quiet_nan)));
    }

    static constexpr ZEROPP_HOST_DEVICE float level(bool outer, const params& p) noexcept {
        return product(outer ? 1.0f : inner, scale_of(p.power));
    }
};

static_assert(refitting_quantizer<lloyd_max<2, 128>> && bounded_quantizer<lloyd_max<4, 128, unbiased>>);

}  // namespace zeropp
