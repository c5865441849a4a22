#pragma once
/// \file
/// The three schemes by which the quantizer `block_integer` maps values of a block to integers. A scheme supplies a
/// block's stats and stored parameters, and the arithmetic between values and codes: nearest, or dithered by noise.

#include <zeropp/core/math.hpp>
#include <zeropp/quantizer/scale.hpp>

#include <concepts>
#include <cstdint>
#include <limits>
#include <string_view>

namespace zeropp {

namespace detail {

/// The low `Bits` bits of `code`, in two's complement.
template <int Bits>
constexpr ZEROPP_HOST_DEVICE std::uint32_t fold_sign(std::int32_t code) noexcept {
    return static_cast<std::uint32_t>(code) & ((1u << Bits) - 1u);
}
/// The integer that has the two's complement bits `code`, `Bits` in number. Requires higher bits to be zero.
template <int Bits>
constexpr ZEROPP_HOST_DEVICE std::int32_t unfold_sign(std::uint32_t code) noexcept {
    constexpr std::int32_t sign = 1 << (Bits - 1);
    return (static_cast<std::int32_t>(code) ^ sign) - sign;
}

/// Parameters of a block, stored with the codes: the step, which may be negative.
template <scale_type Scale>
struct scale_params {
    Scale scale;
};

/// Base class of schemes in which a value is a code times a step. The highest code is 2^(Bits-1) - 1. The lowest code
/// is -2^(Bits-1) if `Wide`, otherwise 1 more. Zero is exact.
template <bool Wide>
struct multiples_of_step {
    /// True if a value is a code times the step.
    static constexpr bool multiplies = true;
    /// True if an element may need a code above the highest one, so that `encode` must clamp.
    static constexpr bool reaches_above = Wide;
    /// The largest error of a value, in steps.
    static constexpr float steps_off = Wide ? 1.0f : 0.5f;

    template <scale_type Scale>
    using params = scale_params<Scale>;

    template <int Bits>
    static constexpr std::int32_t highest = (1 << (Bits - 1)) - 1;
    template <int Bits>
    static constexpr std::int32_t lowest = -highest<Bits> - (Wide ? 1 : 0);

    template <int Bits, scale_type Scale, std::same_as<float>... Noise>
    static constexpr ZEROPP_HOST_DEVICE std::uint32_t encode(float x, const params<Scale>& p, Noise... noise) noexcept {
        return fold_sign<Bits>(nearest_code(x, static_cast<float>(p.scale), lowest<Bits>, highest<Bits>, noise...));
    }

    template <int Bits, scale_type Scale>
    static constexpr ZEROPP_HOST_DEVICE float decode(std::uint32_t code, const params<Scale>& p) noexcept {
        return product(static_cast<float>(unfold_sign<Bits>(code)), static_cast<float>(p.scale));
    }

    /// Distance between the values of neighbouring codes.
    template <scale_type Scale>
    static constexpr ZEROPP_HOST_DEVICE float step(const params<Scale>& p) noexcept {
        const float s = static_cast<float>(p.scale);
        return s < 0 ? -s : s;
    }
};

}  // namespace detail

/// Scheme with codes -qmax..qmax, qmax = 2^(Bits-1) - 1 and step absmax / qmax. Zero is exact. Error at most half a
/// step.
struct symmetric : detail::multiples_of_step<false> {
    static constexpr std::string_view name = "symmetric";

    /// Stats of a block: bits of its largest magnitude. Inf and NaN compare above every finite value.
    struct stats {
        std::uint32_t absmax = 0;

        constexpr ZEROPP_HOST_DEVICE void add(float x) noexcept { take(float_bits(x) & 0x7fffffffu); }
        constexpr ZEROPP_HOST_DEVICE void merge(const stats& other) noexcept { take(other.absmax); }

    private:
        constexpr ZEROPP_HOST_DEVICE void take(std::uint32_t m) noexcept { absmax = m > absmax ? m : absmax; }
    };

    template <int Bits, scale_type Scale>
    static constexpr ZEROPP_HOST_DEVICE params<Scale> fit(const stats& s) noexcept {
        return {whole_step<Scale, highest<Bits>>(bits_float(s.absmax))};
    }
};

/// Scheme with codes -2^(Bits-1)..2^(Bits-1)-1. The step's sign gives the element of largest magnitude the lowest code.
/// That is one code more than in `symmetric`, so the step is smaller. But an element as large, of the other sign, is
/// off by a whole step. Zero is exact. Best at few bits.
struct signed_absmax : detail::multiples_of_step<true> {
    static constexpr std::string_view name = "signed";

    /// Stats of a block: bits of the element of largest magnitude. The sign is the last bit, so that magnitudes compare
    /// first.
    struct stats {
        std::uint32_t extreme = 0;

        constexpr ZEROPP_HOST_DEVICE void add(float x) noexcept {
            const std::uint32_t b = float_bits(x);
            take((b << 1) | (b >> 31));
        }
        constexpr ZEROPP_HOST_DEVICE void merge(const stats& other) noexcept { take(other.extreme); }

    private:
        constexpr ZEROPP_HOST_DEVICE void take(std::uint32_t e) noexcept { extreme = e > extreme ? e : extreme; }
    };

    template <int Bits, scale_type Scale>
    static constexpr ZEROPP_HOST_DEVICE params<Scale> fit(const stats& s) noexcept {
        return {whole_step<Scale, lowest<Bits>>(bits_float((s.extreme >> 1) | (s.extreme << 31)))};
    }
};

/// Scheme with codes 0..2^Bits-1 from the block's minimum to its maximum. Error at most half a step; zero is not exact.
/// Best for values that do not surround zero. A block with maximum - minimum above the largest float decodes to NaN.
struct asymmetric {
    static constexpr std::string_view name = "asymmetric";
    static constexpr bool multiplies = false;
    static constexpr bool reaches_above = false;

    /// Parameters of a block, stored with the codes: step and smallest value. The minimum is rounded down and the step
    /// up, so that the highest code reaches the maximum with every `Scale`.
    template <scale_type Scale>
    struct params {
        Scale scale;
        Scale minimum;
    };

    /// Stats of a block: minimum and maximum, as integers that order like the floats. -NaN and -Inf are lowest, Inf and
    /// NaN highest.
    struct stats {
        std::int32_t low = std::numeric_limits<std::int32_t>::max();
        std::int32_t high = std::numeric_limits<std::int32_t>::min();

        constexpr ZEROPP_HOST_DEVICE void add(float x) noexcept {
            const std::int32_t key = ordered(float_bits(x));
            take(key, key);
        }
        constexpr ZEROPP_HOST_DEVICE void merge(const stats& other) noexcept { take(other.low, other.high); }

        /// Bits of a float as an integer that orders like the float. Applied to that integer, returns the bits.
        static constexpr ZEROPP_HOST_DEVICE std::int32_t ordered(std::uint32_t bits) noexcept {
            const auto b = static_cast<std::int32_t>(bits);
            return b ^ ((b >> 31) & 0x7fffffff);
        }

    private:
        constexpr ZEROPP_HOST_DEVICE void take(std::int32_t l, std::int32_t h) noexcept {
            low = l < low ? l : low;
            high = h > high ? h : high;
        }
    };

    /// Code of the block's maximum.
    template <int Bits>
    static constexpr std::int32_t top = (1 << Bits) - 1;

    template <int Bits, scale_type Scale>
    static constexpr ZEROPP_HOST_DEVICE params<Scale> fit(const stats& s) noexcept {
        const float low = bits_float(static_cast<std::uint32_t>(stats::ordered(static_cast<std::uint32_t>(s.low))));
        const float high = bits_float(static_cast<std::uint32_t>(stats::ordered(static_cast<std::uint32_t>(s.high))));
        const params<Scale> unfit{Scale(quiet_nan), Scale(quiet_nan)};
        if (!is_finite(low) || !is_finite(high)) return unfit;
        const Scale minimum = round_down<Scale>(low);
        const float range = high - static_cast<float>(minimum);
        if (!is_finite(range)) return unfit;
        const Scale scale = stored_step<Scale>(range, static_cast<float>(top<Bits>), static_cast<float>(minimum));
        return is_finite(static_cast<float>(scale)) ? params<Scale>{scale, minimum} : unfit;
    }

    template <int Bits, scale_type Scale, std::same_as<float>... Noise>
    static constexpr ZEROPP_HOST_DEVICE std::uint32_t encode(float x, const params<Scale>& p, Noise... noise) noexcept {
        const float above = x - static_cast<float>(p.minimum);
        return static_cast<std::uint32_t>(nearest_code(above, static_cast<float>(p.scale), 0, top<Bits>, noise...));
    }

    template <int Bits, scale_type Scale>
    static constexpr ZEROPP_HOST_DEVICE float decode(std::uint32_t code, const params<Scale>& p) noexcept {
        return static_cast<float>(p.minimum) +
               product(static_cast<float>(static_cast<std::int32_t>(code)), static_cast<float>(p.scale));
    }

    /// Distance between the values of neighbouring codes.
    template <scale_type Scale>
    static constexpr ZEROPP_HOST_DEVICE float step(const params<Scale>& p) noexcept {
        return static_cast<float>(p.scale);
    }
    /// The largest error of a value, in steps.
    static constexpr float steps_off = 0.5f;
};

}  // namespace zeropp
