#pragma once
/// \file
/// Messages by their documentation: the naive oracle for quantizers and codecs. Shares no code with the library.
/// Computes each float operation in double and rounds once. Double has more than twice float's digits, so the result is
/// correctly rounded and a compiler has nothing to contract.

#include "support/floating_format.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace zeropp_test {

inline float float_sum(float a, float b) { return static_cast<float>(static_cast<double>(a) + static_cast<double>(b)); }
inline float float_product(float a, float b) {
    const float p = static_cast<float>(static_cast<double>(a) * static_cast<double>(b));
    return p == 0.0f ? 0.0f : p;
}
inline float float_quotient(float a, float b) {
    return static_cast<float>(static_cast<double>(a) / static_cast<double>(b));
}

enum class scheme { symmetric, signed_absmax, asymmetric, lossless };

/// A message format; `stored` is the type of the scales, or of the elements if the scheme is lossless.
struct reference_format {
    scheme how;
    int bits;
    std::size_t block_size;
    floating_format stored;

    /// Decoded parameters of one block; a lossless block has none.
    struct parameters {
        float step = 0.0f;
        float minimum = 0.0f;
        bool operator==(const parameters& other) const {
            return same(step, other.step) && same(minimum, other.minimum);
        }
    };

    bool lossless() const { return how == scheme::lossless; }
    int numbers_per_block() const { return lossless() ? 0 : how == scheme::asymmetric ? 2 : 1; }

    /// Largest distance of a code from the codes' origin, in steps.
    int furthest() const {
        if (how == scheme::symmetric) return (1 << (bits - 1)) - 1;
        if (how == scheme::signed_absmax) return 1 << (bits - 1);
        return (1 << bits) - 1;
    }

    // ---- one block

    /// Step, rounded up to a stored value, with which the furthest code reaches `extent` from `origin`: at least
    /// 2^-126, or 0 for extent 0. If decoding overflows, the next smaller step if stored as float, otherwise NaN.
    float step_for(float extent, float origin) const {
        const float reach = static_cast<float>(furthest());
        float ideal = float_quotient(extent, reach);
        if (extent > 0.0f) ideal = std::max(ideal, 0x1p-126f);
        std::uint32_t code = stored.ceil(static_cast<double>(ideal));
        if (code == stored.infinity()) return std::numeric_limits<float>::quiet_NaN();
        const auto step = [&] { return static_cast<float>(stored.value(code)); };
        if (!is_finite(static_cast<double>(float_sum(origin, float_product(step(), reach))))) {
            if (stored.bytes() != 4) return std::numeric_limits<float>::quiet_NaN();
            --code;
        }
        return step();
    }

    parameters fit(const float* x, std::size_t n) const {
        const float nan = std::numeric_limits<float>::quiet_NaN();
        float low = x[0];
        float high = x[0];
        for (std::size_t i = 0; i != n; ++i) {
            if (!is_finite(static_cast<double>(x[i]))) return {nan, how == scheme::asymmetric ? nan : 0.0f};
            // Negative zero is below positive zero.
            if (x[i] < low || (x[i] == low && std::signbit(x[i]))) low = x[i];
            if (x[i] > high || (x[i] == high && !std::signbit(x[i]))) high = x[i];
        }
        if (how == scheme::asymmetric) {
            const std::uint32_t magnitude =
                low < 0.0f ? stored.ceil(-static_cast<double>(low)) : stored.floor(static_cast<double>(low));
            if (low < 0.0f && magnitude == stored.infinity()) return {nan, nan};
            // A `low` above the largest stored value has that value as its minimum.
            const double value = stored.value(std::min(magnitude, stored.infinity() - 1));
            const float minimum = static_cast<float>(std::signbit(low) ? -value : value);
            const float range = float_sum(high, -minimum);
            const float step = is_finite(static_cast<double>(range)) ? step_for(range, minimum) : nan;
            return {step, is_nan(step) ? nan : minimum};
        }
        const float absmax = std::max(std::fabs(low), std::fabs(high));
        const float step = step_for(absmax, 0.0f);
        // The extreme maps to the negative end, so a positive one makes the step negative; -absmax wins over +absmax.
        const bool positive = !(low == -absmax && std::signbit(low));
        return {how == scheme::signed_absmax && positive ? -step : step, 0.0f};
    }

    /// Code of x: x in steps (multiplied by 1 / step), clamped, plus noise, rounded to nearest even, and clamped again.
    /// Zero in a block that decodes to NaN.
    std::uint32_t encode(float x, const parameters& p, float noise = 0.0f) const {
        if (lossless()) {
            if (stored.bytes() == 4) return bits_of(x);
            if (is_nan(x)) return (bits_of(x) >> 31 << 15) | stored.infinity() | (1u << (stored.mantissa_bits - 1));
            return stored.nearest(static_cast<double>(x));
        }
        const int low = how == scheme::symmetric ? -furthest() : how == scheme::signed_absmax ? -furthest() : 0;
        const int high = how == scheme::signed_absmax ? furthest() - 1 : furthest();
        const float steps_in_one = p.step == 0.0f ? 0.0f : float_quotient(1.0f, p.step);
        const float reach = static_cast<float>(furthest());
        const float steps = std::clamp(float_product(float_sum(x, -p.minimum), steps_in_one), -reach, reach);
        const float t = float_sum(steps, noise);
        const double code =
            is_nan(p.step) ? 0.0 : std::clamp<double>(std::nearbyint(static_cast<double>(t)), low, high);
        return static_cast<std::uint32_t>(static_cast<std::int32_t>(code)) & ((1u << bits) - 1u);
    }

    float decode(std::uint32_t code, const parameters& p) const {
        if (lossless()) return stored.bytes() == 4 ? float_of(code) : static_cast<float>(stored.value(code));
        int steps = static_cast<int>(code);
        if (how != scheme::asymmetric && steps >= 1 << (bits - 1)) steps -= 1 << bits;
        const float shift = float_product(static_cast<float>(steps), p.step);
        return how == scheme::asymmetric ? float_sum(p.minimum, shift) : shift;
    }

    // ---- one message

    std::size_t blocks(std::size_t n) const { return (n + block_size - 1) / block_size; }
    std::size_t stored_bytes() const { return static_cast<std::size_t>(stored.bytes()); }

    /// First byte of the parameters: after the codes, aligned to one number.
    std::size_t params_offset(std::size_t n) const {
        std::size_t offset = (n * static_cast<std::size_t>(bits) + 7) / 8;
        while (!lossless() && offset % stored_bytes() != 0) ++offset;
        return offset;
    }

    std::size_t message_bytes(std::size_t n) const {
        std::size_t bytes =
            params_offset(n) + blocks(n) * stored_bytes() * static_cast<std::size_t>(numbers_per_block());
        while (bytes % 16 != 0) ++bytes;
        return bytes;
    }

    /// Message of `count` elements, of which the first values.size() exist; `noise` is empty or theirs.
    std::vector<std::uint8_t> message(const std::vector<float>& values, std::size_t count,
                                      const std::vector<float>& noise = {}) const {
        std::vector<std::uint8_t> bytes(message_bytes(count));
        std::size_t at = params_offset(count);
        const auto put_number = [&](float x) {
            std::uint32_t number = is_nan(x) ? stored.infinity() | (1u << (stored.mantissa_bits - 1))
                                             : stored.nearest(static_cast<double>(x));
            for (std::size_t i = 0; i != stored_bytes(); ++i)
                bytes[at++] = static_cast<std::uint8_t>(number >> (8 * i));
        };
        for (std::size_t begin = 0; begin < values.size(); begin += block_size) {
            const std::size_t n = std::min(block_size, values.size() - begin);
            const parameters p = lossless() ? parameters{} : fit(&values[begin], n);
            for (std::size_t i = begin; i != begin + n; ++i) {
                const std::uint32_t code = encode(values[i], p, noise.empty() ? 0.0f : noise[i]);
                for (std::size_t b = 0; b != static_cast<std::size_t>(bits); ++b) {
                    const std::size_t bit = i * static_cast<std::size_t>(bits) + b;
                    if ((code >> b & 1u) != 0)
                        bytes[bit / 8] = static_cast<std::uint8_t>(bytes[bit / 8] | 1u << bit % 8);
                }
            }
            if (numbers_per_block() > 0) put_number(p.step);
            if (numbers_per_block() > 1) put_number(p.minimum);
        }
        return bytes;
    }

    /// First n elements of a message of `count` elements.
    std::vector<float> elements(const std::uint8_t* bytes, std::size_t count, std::size_t n) const {
        std::vector<float> values(n);
        for (std::size_t i = 0; i != n; ++i) {
            std::uint32_t code = 0;
            for (std::size_t b = 0; b != static_cast<std::size_t>(bits); ++b) {
                const std::size_t bit = i * static_cast<std::size_t>(bits) + b;
                code |= static_cast<std::uint32_t>(bytes[bit / 8] >> bit % 8 & 1) << b;
            }
            const auto number = [&](int which) {
                std::uint32_t x = 0;
                const std::size_t index =
                    i / block_size * static_cast<std::size_t>(numbers_per_block()) + static_cast<std::size_t>(which);
                for (std::size_t b = 0; b != stored_bytes(); ++b) {
                    x |= static_cast<std::uint32_t>(bytes[params_offset(count) + index * stored_bytes() + b])
                         << (8 * b);
                }
                return static_cast<float>(stored.value(x));
            };
            parameters p;
            if (numbers_per_block() > 0) p.step = number(0);
            if (numbers_per_block() > 1) p.minimum = number(1);
            values[i] = decode(code, p);
        }
        return values;
    }
};

}  // namespace zeropp_test
