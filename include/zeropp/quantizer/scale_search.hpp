#pragma once
/// \file
/// Scales chosen by the error that they cause.

#include <zeropp/core/math.hpp>
#include <zeropp/quantizer/quantizer.hpp>

#include <cstdint>

namespace zeropp {

/// `Base` with the best of `Candidates` ranges for each block: the fitted one, and narrower ones in steps of 2 %. These
/// clip the extremes but serve other elements better. The widest of least squared error is kept. Costs an encoding and
/// a decoding for each candidate; decoding costs nothing more. Best at few bits.
///
/// Requires that Base has `shrunk(params, factor)` and `spacing(params)`, as `block_integer` does.
template <quantizer Base, int Candidates = 16>
struct scale_search : Base {
    static_assert(Candidates >= 2 && Candidates <= 32, "scale_search: Candidates must be from 2 to 32");
    static_assert(!searching_quantizer<Base> && !refitting_quantizer<Base> && !stochastic_quantizer<Base>,
                  "scale_search: the base quantizer must encode elements by value, with parameters that are fitted");

    using typename Base::params;

    static constexpr int candidates = Candidates;

    constexpr ZEROPP_HOST_DEVICE params candidate(const params& fitted, int k) const noexcept {
        return k == 0 ? fitted : this->shrunk(fitted, 1.0f - product(0.02f, static_cast<float>(k)));
    }

    /// The squared error in units of (step / resolution)^2. Blocks with steps below 2^-121 keep the fitted range.
    constexpr ZEROPP_HOST_DEVICE std::uint32_t error(float x, const params& p, const params& fitted) const noexcept {
        const float units = quotient(resolution, this->spacing(fitted));
        const float off = (x - this->decode(this->encode(x, p), p)) * units;
        const std::uint32_t squared = float_bits(off * off);
        // Compared as bits, which order like magnitudes and put NaN above all.
        const float bounded =
            bits_float(squared < float_bits(static_cast<float>(most)) ? squared : float_bits(static_cast<float>(most)));
        return static_cast<std::uint32_t>(static_cast<std::int32_t>(bounded));
    }

    /// At least the largest magnitude in a block that `p` was found for.
    constexpr ZEROPP_HOST_DEVICE float extent(const params& p) const noexcept requires bounded_quantizer<Base> {
        return Base::extent(p) * (1.0f / narrowest);
    }

    /// Bound of `Base`, plus the most that may be clipped, of a whole window if elements are rotated.
    constexpr ZEROPP_HOST_DEVICE float error_bound(float x,
                                                   const params& p) const noexcept requires bounded_quantizer<Base> {
        constexpr int window = detail::rotation_size<Base>();
        constexpr float reach = static_cast<float>(window) * detail::rotation_scale<window>(true);
        return Base::error_bound(x, p) + reach * (Base::extent(p) * (1.0f / narrowest - 1.0f));
    }

    /// "int4:128:search16"
    constexpr short_text name() const { return short_text(Base::name()).append(":search").append(Candidates); }

private:
    /// Width of the last candidate's range, relative to the fitted one.
    static constexpr float narrowest = 1.0f - 0.02f * static_cast<float>(Candidates - 1);

    /// The largest `error` of one element: the sum over a block fits into 32 bits.
    static constexpr std::uint32_t most = 0x80000000u / static_cast<std::uint32_t>(Base::block_size);

    /// Units in a step: few enough that `most` has room for the clipped part of an element. Otherwise extremes would
    /// count too little, and large blocks would give them up for other elements.
    static constexpr float resolution = [] {
        const float clipped = (1.0f - narrowest) * static_cast<float>(1u << (Base::code_bits - 1)) + 1.0f;
        float units = 128.0f;
        while (clipped * units * clipped * units > static_cast<float>(most)) units *= 0.5f;
        return units;
    }();
};

template <quantizer Base, int Candidates>
inline constexpr bool has_integer_arithmetic<scale_search<Base, Candidates>> = has_integer_arithmetic<Base>;

}  // namespace zeropp
