#pragma once
/// \file
/// Quantizers with stochastic rounding.

#include <zeropp/core/math.hpp>
#include <zeropp/quantizer/quantizer.hpp>

#include <cstdint>

namespace zeropp {

/// The quantizer `Base` with stochastic rounding: a value between two codes becomes one of them, the nearer one more
/// often, so that nothing is lost on average. Base still clips values: use `symmetric` or `asymmetric`, which clip
/// none.
///
/// The noise of an element is a function of (seed, step, noise_phase, its index in the whole tensor, whether it is a
/// sum). So bits are equal on host and GPU, for any launch shape, transport and number of chunks. Give each rank
/// another seed, so that errors of ranks are independent, and each step another number. Decoding needs neither seed nor
/// step. If two collectives of one phase and step round each other's results, give each another seed.
///
/// Requires that Base has `encode(x, params, noise)`, as `block_integer` does.
template <quantizer Base>
struct stochastic : Base {
    static_assert(!stochastic_quantizer<Base>, "stochastic: the base quantizer rounds at random already");
    static_assert(
        requires(const Base& q, const typename Base::params& p, float x, float noise) { q.encode(x, p, noise); },
        "stochastic: the base quantizer must encode with noise, as block_integer does");

    using typename Base::params;

    /// Key of the noise; another one on each rank.
    std::uint64_t seed = 0;
    /// Number of the training step.
    std::uint64_t step = 0;

    constexpr stochastic() = default;
    constexpr ZEROPP_HOST_DEVICE stochastic(std::uint64_t seed_of_rank, std::uint64_t step_of_training,
                                            const Base& base = {})
        : Base(base), seed(seed_of_rank), step(step_of_training) {}

    constexpr ZEROPP_HOST_DEVICE rounding_noise noise(std::uint64_t granule, bool sum) const noexcept {
        return {philox(
            {{static_cast<std::uint32_t>(granule), static_cast<std::uint32_t>(granule >> 32) | (sum ? 0x80000000u : 0u),
              static_cast<std::uint32_t>(step), static_cast<std::uint32_t>(step >> 32)}},
            seed)};
    }

    /// Changes the noise from that of `reduction` to that of `phase`.
    constexpr void enter(noise_phase phase) noexcept { seed += static_cast<std::uint64_t>(phase) * 0x9e3779b97f4a7c15; }

    /// Bound of |decode(encode(x)) - x|: twice the bound of `Base`, because x may become the farther one of two codes.
    constexpr ZEROPP_HOST_DEVICE float error_bound(float x, const params& p) const noexcept
        requires bounded_quantizer<Base>
    {
        return 2.0f * Base::error_bound(x, p);
    }

    /// The quantizer's name: of `Base`, then ":stochastic", as "int4:128:stochastic".
    constexpr short_text name() const { return short_text(Base::name()).append(":stochastic"); }
};

template <quantizer Base>
inline constexpr bool has_integer_arithmetic<stochastic<Base>> = has_integer_arithmetic<Base>;

}  // namespace zeropp
