#pragma once
/// \file
/// Laws of the quantizer concept. They see each quantizer as a `quantizer_model`, so that they are compiled only once.

#include <zeropp/quantizer/quantizer.hpp>

#include "support/catch.hpp"
#include "support/floating_format.hpp"
#include "support/samples.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

namespace zeropp_test {

/// One block after a quantizer.
struct quantized_block {
    std::vector<std::uint32_t> codes;
    std::vector<float> decoded;
    std::vector<float> bounds;  // empty if the quantizer states none
    std::vector<std::uint8_t> params;
};

/// The properties of a quantizer that the laws use.
struct quantizer_model {
    std::string name;
    std::size_t block_size;
    std::uint32_t highest_code;
    /// True if each code depends on its element alone, so that NaN and Inf do not spread.
    bool element_wise;

    quantized_block (*round_trip)(const std::vector<float>& block);
    /// Bytes of the parameters fitted to all parts. Merges the parts' stats one after another, from the first (`left`)
    /// or from the last (`right`). An empty part is a default-constructed stats.
    std::vector<std::uint8_t> (*fit_left)(const std::vector<std::vector<float>>& parts);
    std::vector<std::uint8_t> (*fit_right)(const std::vector<std::vector<float>>& parts);
    /// True if `a` merged from the left and `b` from the right give equal bytes. Always true for stats with padding.
    bool (*same_stats)(const std::vector<std::vector<float>>& a, const std::vector<std::vector<float>>& b);
};

namespace model_of {

template <class Params>
std::vector<std::uint8_t> bytes(const Params& p) {
    std::vector<std::uint8_t> all(std::is_empty_v<Params> ? 0 : sizeof p);
    if (!all.empty()) std::memcpy(all.data(), &p, all.size());
    return all;
}

template <class Stats>
Stats taken(const std::vector<float>& values) {
    Stats s;
    for (const float x : values) s.add(x);
    return s;
}

template <class Stats>
Stats left(const std::vector<std::vector<float>>& parts) {
    Stats s;
    for (const auto& part : parts) s.merge(taken<Stats>(part));
    return s;
}

template <class Stats>
Stats right(const std::vector<std::vector<float>>& parts) {
    Stats s;
    for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
        Stats t = taken<Stats>(*part);
        t.merge(s);
        s = t;
    }
    return s;
}

template <class Q>
quantized_block round_trip(const std::vector<float>& block) {
    const Q q{};
    const auto p = q.fit(taken<typename Q::stats>(block));
    quantized_block result;
    result.params = bytes(p);
    for (const float x : block) {
        result.codes.push_back(q.encode(x, p));
        result.decoded.push_back(q.decode(result.codes.back(), p));
        if constexpr (zeropp::bounded_quantizer<Q>) result.bounds.push_back(q.error_bound(x, p));
    }
    return result;
}

}  // namespace model_of

/// Model of quantizer Q; see quantizer_model for `element_wise`.
template <zeropp::quantizer Q>
quantizer_model describe(bool element_wise = false) {
    using stats = typename Q::stats;
    using parts = std::vector<std::vector<float>>;
    return {zeropp::short_text(Q{}.name()).str(),
            static_cast<std::size_t>(Q::block_size),
            zeropp::ternary_quantizer<Q> ? 2u : static_cast<std::uint32_t>((std::uint64_t{1} << Q::code_bits) - 1),
            element_wise,
            &model_of::round_trip<Q>,
            [](const parts& p) { return model_of::bytes(Q{}.fit(model_of::left<stats>(p))); },
            [](const parts& p) { return model_of::bytes(Q{}.fit(model_of::right<stats>(p))); },
            [](const parts& a, const parts& b) {
                if constexpr (std::has_unique_object_representations_v<stats>) {
                    const stats x = model_of::left<stats>(a);
                    const stats y = model_of::right<stats>(b);
                    return std::memcmp(&x, &y, sizeof x) == 0;
                } else {
                    return true;
                }
            }};
}

/// Codes fit their bits, and errors stay within the quantizer's bounds, if it has any. With `may_overflow`, the whole
/// block may decode to NaN, because the quantizer may not be able to hold it.
inline void check_block(const quantizer_model& q, const std::vector<float>& block, bool may_overflow = false) {
    const quantized_block result = q.round_trip(block);
    const bool all_nan = std::all_of(result.decoded.begin(), result.decoded.end(), is_nan);
    for (std::size_t i = 0; i != block.size(); ++i) {
        if (result.codes[i] > q.highest_code) {
            CAPTURE(q.name, i, text_of(block[i]), result.codes[i]);
            FAIL_CHECK("a code does not fit its bits");
        }
        if (may_overflow && all_nan) continue;
        if (!result.bounds.empty()) {
            const double error = std::fabs(static_cast<double>(result.decoded[i]) - static_cast<double>(block[i]));
            if (!(error <= static_cast<double>(result.bounds[i]))) {
                CAPTURE(q.name, i, block.size(), text_of(block[i]), text_of(result.decoded[i]),
                        text_of(result.bounds[i]));
                FAIL_CHECK("further off than the quantizer says");
                return;
            }
        } else if (is_nan(result.decoded[i])) {
            CAPTURE(q.name, i, text_of(block[i]));
            FAIL_CHECK("NaN out of nothing");
            return;
        }
    }
    const quantized_block again = q.round_trip(block);
    const bool same_bits = again.codes == result.codes && again.params == result.params &&
                           std::equal(again.decoded.begin(), again.decoded.end(), result.decoded.begin(), same);
    INFO(q.name);
    CHECK(same_bits);
}

/// Stats are a commutative monoid, to the bit.
inline void check_stats_laws(const quantizer_model& q, std::uint64_t seed) {
    CAPTURE(q.name);
    using parts = std::vector<std::vector<float>>;
    random_source random(seed);
    const std::vector<float> special{0.0f,
                                     -0.0f,
                                     1.0f,
                                     -1.0f,
                                     float_of(1),
                                     float_of(0x80000001u),
                                     3e38f,
                                     -3e38f,
                                     float_of(0x7f800000u),
                                     float_of(0xff800000u),
                                     float_of(0x7fc00000u),
                                     float_of(0xffc00001u)};
    for (int round = 0; round != 40; ++round) {
        parts p(3);
        for (auto& part : p) {
            // An empty part is the identity.
            part.resize(random.below(5));
            for (float& x : part) {
                x = random.below(4) == 0 ? special[random.below(special.size())] : static_cast<float>(random.normal());
            }
        }
        p[random.below(3)].push_back(static_cast<float>(random.normal()));
        const parts swapped{p[1], p[0], p[2]};
        const parts reversed{p[2], p[1], p[0]};
        parts whole(1);
        for (const auto& part : p) whole[0].insert(whole[0].end(), part.begin(), part.end());
        const auto expected = q.fit_left(whole);
        for (const parts& other : {p, swapped, reversed}) {
            const bool in_any_order = q.fit_left(other) == expected && q.fit_right(other) == expected &&
                                      q.same_stats(whole, other) && q.same_stats(other, p);
            CHECK(in_any_order);
        }
    }
}

/// A block of zeros of either sign decodes to zeros.
inline void check_zeros(const quantizer_model& q) {
    CAPTURE(q.name);
    for (const std::size_t n : {std::size_t{1}, std::size_t{2}, std::size_t{7}, q.block_size}) {
        for (int signs = 0; signs != 3; ++signs) {
            std::vector<float> zeros(n, signs == 1 ? -0.0f : 0.0f);
            if (signs == 2) zeros[n / 2] = -0.0f;
            const auto decoded = q.round_trip(zeros).decoded;
            CHECK(std::all_of(decoded.begin(), decoded.end(), [](float x) { return x == 0.0f; }));
        }
    }
}

/// One NaN or Inf makes every element NaN; in element-wise quantizers only its own element changes.
inline void check_not_finite(const quantizer_model& q) {
    CAPTURE(q.name);
    const std::size_t n = q.block_size;
    std::size_t wrong = 0;
    for (const std::uint32_t bits : {0x7f800000u, 0xff800000u, 0x7fc00000u, 0xffc00000u, 0x7f800001u, 0xffffffffu}) {
        for (const std::size_t at : {std::size_t{0}, std::size_t{1}, n / 2, n - 1}) {
            std::vector<float> block = normal_floats(n, 7);
            block[at] = float_of(bits);
            const auto decoded = q.round_trip(block).decoded;
            for (std::size_t i = 0; i != n; ++i) {
                const bool finite = is_finite(static_cast<double>(decoded[i]));
                const bool untouched = is_nan(block[i]) ? is_nan(decoded[i]) : decoded[i] == block[i];
                const bool right = !q.element_wise ? is_nan(decoded[i]) : i == at ? untouched : finite;
                if (!right) ++wrong;
            }
        }
        if (is_finite(static_cast<double>(q.round_trip({float_of(bits)}).decoded[0]))) ++wrong;
    }
    CHECK(wrong == 0);
}

/// Ordinary blocks of all shapes, and the extremes of float.
inline void check_blocks(const quantizer_model& q) {
    const std::size_t n = q.block_size;
    for (const std::size_t size : {std::size_t{1}, std::size_t{2}, std::size_t{7}, n - 1, n}) {
        for (const double scale : {1e-3, 1.0, 300.0}) check_block(q, normal_floats(size, size, scale));
        std::vector<float> shifted = normal_floats(size, 11, 0.01);
        for (float& x : shifted) x += 100.0f;
        check_block(q, shifted);
        for (float& x : shifted) x = -x;
        check_block(q, shifted);
    }
    for (const float x : {1.0f, -1.0f, 0.1f, -3.75f, 65504.0f, 1e-30f, 1e-42f}) {
        check_block(q, {x});
        check_block(q, std::vector<float>(n, x));
        check_block(q, {x, -x});
    }

    constexpr float largest = std::numeric_limits<float>::max();
    constexpr float smallest_normal = std::numeric_limits<float>::min();
    const float denormal = float_of(1);
    for (const float x : {denormal, -denormal, float_of(12345), smallest_normal, -smallest_normal, 5e-8f, -6e-8f}) {
        check_block(q, {x});
        check_block(q, {x, 0.0f, -x, 2 * x, 0.5f * x});
    }
    for (const float x : {largest, -largest, 0.999f * largest, largest / 2, 1e38f, 1e30f, 6e6f, -70000.0f}) {
        check_block(q, {x}, true);
        check_block(q, {x, 0.0f}, true);
        check_block(q, {x, 1.0f, x / 3}, true);
        check_block(q, {x, -x}, true);
        check_block(q, {x, x / 2}, true);
        check_block(q, {x, -x / 2, 1e-40f}, true);
    }
    // Large values of every size up to the largest float, so that each rounding of the scale is tried.
    random_source random(5);
    for (int i = 0; i != 300; ++i) {
        const float a = static_cast<float>(random.uniform() * static_cast<double>(largest));
        const float b = static_cast<float>((random.uniform() - 0.5) * static_cast<double>(largest));
        check_block(q, {a, b, a / 2}, true);
        check_block(q, {-a, b}, true);
        check_block(q, {a, a * 0.75f}, true);
    }
}

inline void check_quantizer_laws(const quantizer_model& q) {
    check_stats_laws(q, 3);
    check_zeros(q);
    check_not_finite(q);
    check_blocks(q);
}

}  // namespace zeropp_test
