#pragma once
/// \file
/// Quantizers as a user would write them, each with one ability beyond the concept.

#include <zeropp/quantizer/quantizer.hpp>

#include <cmath>
#include <cstdint>
#include <limits>

namespace zeropp_test {

/// Integers of 8 bits with one step for a whole message, from its largest finite magnitude. A block's parameter says
/// whether the block is finite. It has 3 bytes, so that the message's scale behind the parameters must be aligned.
struct toy_message_scaled {
    static constexpr int block_size = 8;
    static constexpr int code_bits = 8;

    float absmax = -1.0f;

    struct params {
        std::uint8_t broken[3];
    };
    struct stats {
        bool broken = false;

        void add(float x) noexcept { broken = broken || !std::isfinite(x); }
        void merge(const stats& other) noexcept { broken = broken || other.broken; }
    };

    /// The result's absmax is NaN if this quantizer is already scaled.
    toy_message_scaled scaled_for(float message_absmax) const noexcept {
        return {absmax < 0.0f ? message_absmax : std::numeric_limits<float>::quiet_NaN()};
    }

    params fit(const stats& s) const noexcept {
        const auto b = static_cast<std::uint8_t>(s.broken ? 7 : 1);
        return {{b, b, b}};
    }
    std::uint32_t encode(float x, const params& p) const noexcept {
        if (p.broken[2] == 7 || !(absmax > 0.0f)) return 0;
        return static_cast<std::uint32_t>(static_cast<int>(std::nearbyint(x / absmax * 100.0f))) & 255u;
    }
    float decode(std::uint32_t code, const params& p) const noexcept {
        if (p.broken[0] == 7) return std::numeric_limits<float>::quiet_NaN();
        return static_cast<float>(static_cast<std::int8_t>(code)) / 100.0f * absmax;
    }
    static zeropp::short_text name() { return "toy-message-scaled"; }
};
static_assert(zeropp::message_scaled_quantizer<toy_message_scaled>);

}  // namespace zeropp_test
