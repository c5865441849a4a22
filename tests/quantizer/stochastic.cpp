#include <zeropp/quantizer/stochastic.hpp>

#include <zeropp/quantizer/block_integer.hpp>

#include "support/catch.hpp"
#include "support/floating_format.hpp"
#include "support/samples.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <type_traits>
#include <utility>
#include <vector>

namespace {

using namespace zeropp_test;
using zeropp::asymmetric;
using zeropp::bfloat16;
using zeropp::block_integer;
using zeropp::half;
using zeropp::signed_absmax;
using zeropp::stochastic;
using zeropp::symmetric;

using q4 = stochastic<block_integer<4, 128>>;
static_assert(zeropp::stochastic_quantizer<q4> && zeropp::bounded_quantizer<q4>);
static_assert(q4::block_size == 128 && q4::code_bits == 4);

template <class Q>
typename Q::params fitted(const std::vector<float>& block) {
    typename Q::stats stats;
    for (const float x : block) stats.add(x);
    return Q{}.fit(stats);
}

/// Noise at both ends of its range and next to zero.
std::vector<float> extreme_noise() {
    std::vector<float> noise;
    for (const std::uint32_t low : {0u, 1u, 0x7fffu, 0x8000u, 0xfffeu, 0xffffu}) {
        noise.push_back(zeropp::rounding_noise{{{low, 0, 0, 0}}}.at(0));
    }
    return noise;
}

/// Multiples of a step that is a power of two, from the furthest code of one end to that of the other.
template <int Bits, class Scheme, class Scale>
void check_multiples_are_kept() {
    using Q = stochastic<block_integer<Bits, 256, Scheme, Scale>>;
    CAPTURE(Q{}.name().str());
    const bool shifted = std::is_same_v<Scheme, asymmetric>;
    const int low = shifted ? 0 : std::is_same_v<Scheme, symmetric> ? -(1 << (Bits - 1)) + 1 : -(1 << (Bits - 1));
    const int high = shifted ? (1 << Bits) - 1 : (1 << (Bits - 1)) - 1;
    std::vector<float> multiples;
    for (int code = low; code <= high; ++code) multiples.push_back(0.25f * static_cast<float>(code));
    const auto params = fitted<Q>(multiples);
    std::size_t wrong = 0;
    for (const float noise : extreme_noise()) {
        for (const float x : multiples)
            if (Q{}.decode(Q{}.encode(x, params, noise), params) != x) ++wrong;
    }
    CHECK(wrong == 0);
}

template <class Scheme, class Scale>
void check_every_width() {
    []<int... I>(std::integer_sequence<int, I...>) {
        (check_multiples_are_kept<I + 2, Scheme, Scale>(), ...);
    }(std::make_integer_sequence<int, 7>{});
}

/// The mean over many steps and over seeds of what an element decodes to, less the element, in standard deviations of
/// that mean. A code is off by f or 1 - f steps with variance f (1 - f).
template <class Q>
void check_unbiased(const std::vector<float>& block) {
    CAPTURE(Q{}.name().str());
    const auto params = fitted<Q>(block);
    const double step = std::fabs(static_cast<double>(Q{}.spacing(params)));
    constexpr int draws = 4096;
    double worst = 0;
    double over_all = 0;
    double variance_over_all = 0;
    for (const bool by_seed : {false, true}) {
        for (std::size_t i = 0; i != block.size(); ++i) {
            double sum = 0;
            double low = std::numeric_limits<double>::infinity();
            double high = -low;
            for (std::uint64_t k = 0; k != draws; ++k) {
                const Q q(by_seed ? k : 11, by_seed ? 22 : k);
                const float noise = q.noise(i / 8, false).at(static_cast<int>(i % 8));
                const double decoded = static_cast<double>(q.decode(q.encode(block[i], params, noise), params));
                sum += decoded - static_cast<double>(block[i]);
                low = std::min(low, decoded);
                high = std::max(high, decoded);
            }
            // One of two neighbours.
            CHECK(high - low <= step * 1.001);
            const double steps = (static_cast<double>(block[i]) - static_cast<double>(Q{}.decode(0, params))) / step;
            const double fraction = steps - std::floor(steps);
            const double variance = fraction * (1.0 - fraction) * step * step / draws;
            // Noise comes in steps of 2^-15, and the multiplication with 1 / step rounds.
            const double resolution = step * 0x1p-14;
            worst = std::max(worst, (std::fabs(sum / draws) - resolution) / std::sqrt(variance + 1e-30));
            over_all += sum / draws;
            variance_over_all += variance;
        }
    }
    // Five sigma for each of 512 means; and for their sum.
    CHECK(worst < 5.0);
    const double resolution = 2.0 * static_cast<double>(block.size()) * step * 0x1p-15;
    CHECK(std::fabs(over_all) < 5.0 * std::sqrt(variance_over_all) + resolution);
}

/// The correlation of two sequences of noise times the square root of their length: normal, if they are independent.
double correlation(const std::vector<double>& a, const std::vector<double>& b) {
    double sum = 0;
    for (std::size_t i = 0; i != a.size(); ++i) sum += a[i] * b[i];
    return sum * 12.0 / std::sqrt(static_cast<double>(a.size()));
}

std::vector<double> noise_of(const q4& q, bool sum, std::uint64_t first_granule, std::size_t granules) {
    std::vector<double> noise;
    for (std::size_t g = 0; g != granules; ++g) {
        const zeropp::rounding_noise words = q.noise(first_granule + g, sum);
        for (int i = 0; i != 8; ++i) noise.push_back(static_cast<double>(words.at(i)));
    }
    return noise;
}

}  // namespace

TEST_CASE("noise lies strictly within half a step, evenly, with mean zero", "[quantizer][stochastic]") {
    std::map<float, int> values;
    double sum = 0;
    for (std::uint32_t bits = 0; bits != 0x10000u; ++bits) {
        const zeropp::rounding_noise low{{{bits, 0, 0, 0}}};
        const float x = low.at(0);
        ++values[x];
        sum += static_cast<double>(x);
        // Each of the eight has 16 bits of its own.
        const std::uint32_t high = bits << 16;
        CHECK(zeropp::rounding_noise{{{high, 0, 0, 0}}}.at(1) == x);
        CHECK(zeropp::rounding_noise{{{0, 0, 0, bits}}}.at(6) == x);
        CHECK(zeropp::rounding_noise{{{0, high, 0, 0}}}.at(3) == x);
    }
    const float first = values.begin()->first;
    CHECK(first > -0.5f);
    CHECK(first == -values.rbegin()->first);
    CHECK(sum == 0.0);
    // Equally often, in equal steps.
    REQUIRE(values.size() == 0x8000u);
    std::size_t uneven = 0;
    float expected = first;
    for (const auto& [x, times] : values) {
        if (x != expected || times != 2) ++uneven;
        expected += 0x1p-15f;
    }
    CHECK(uneven == 0);
}

TEST_CASE("multiples of a step are kept, whatever the noise", "[quantizer][stochastic]") {
    check_every_width<symmetric, float>();
    check_every_width<signed_absmax, half>();
    check_every_width<asymmetric, float>();
    check_every_width<asymmetric, bfloat16>();
}

TEST_CASE("on average nothing is lost", "[quantizer][stochastic][accuracy]") {
    std::vector<float> block = normal_floats(256, 12);
    check_unbiased<stochastic<block_integer<4, 256>>>(block);
    check_unbiased<stochastic<block_integer<8, 256, asymmetric, half>>>(block);
    // Those that signed_absmax clips: beyond the last positive code.
    block[7] = -4.0f;
    for (float& x : block) x = std::fmin(x, 3.4f);
    check_unbiased<stochastic<block_integer<4, 256, signed_absmax>>>(block);
    check_unbiased<stochastic<block_integer<2, 256>>>(block);
}

TEST_CASE("noise of different elements, sums, steps and seeds is independent", "[quantizer][stochastic]") {
    constexpr std::size_t granules = 20'000;
    const q4 q(5, 6);
    const auto noise = noise_of(q, false, 0, granules);
    double mean = 0;
    double square = 0;
    for (const double x : noise) {
        mean += x;
        square += x * x;
    }
    const auto n = static_cast<double>(noise.size());
    // Uniform: variance 1 / 12, that of its square 1 / 180.
    CHECK(std::fabs(mean) < 5.0 * std::sqrt(n / 12.0));
    CHECK(std::fabs(square - n / 12.0) < 5.0 * std::sqrt(n / 180.0));
    for (const std::size_t lag : {std::size_t{1}, std::size_t{2}, std::size_t{7}, std::size_t{8}, std::size_t{64}}) {
        const std::vector<double> early(noise.begin(), noise.end() - static_cast<std::ptrdiff_t>(lag));
        const std::vector<double> late(noise.begin() + static_cast<std::ptrdiff_t>(lag), noise.end());
        CAPTURE(lag);
        CHECK(std::fabs(correlation(early, late)) < 5.0);
    }
    // Every input of the generator counts, to its highest bit.
    std::vector<std::vector<double>> others{noise_of(q, true, 0, granules),
                                            noise_of(q4(5, 7), false, 0, granules),
                                            noise_of(q4(4, 6), false, 0, granules),
                                            noise_of(q4(5, 6 + (std::uint64_t{1} << 63)), false, 0, granules),
                                            noise_of(q4(5 + (std::uint64_t{1} << 63), 6), false, 0, granules),
                                            noise_of(q, false, std::uint64_t{1} << 32, granules),
                                            noise_of(q, false, std::uint64_t{1} << 60, granules)};
    for (const zeropp::noise_phase phase : {zeropp::noise_phase::gather, zeropp::noise_phase::copy}) {
        others.push_back(noise_of(zeropp::detail::in_phase(q, phase), false, 0, granules));
    }
    CHECK(noise_of(zeropp::detail::in_phase(q, zeropp::noise_phase::reduction), false, 0, granules) == noise);
    for (std::size_t i = 0; i != others.size(); ++i) {
        CAPTURE(i);
        CHECK(std::fabs(correlation(noise, others[i])) < 5.0);
        CHECK(others[i] != noise);
    }
    // And nothing else: asked again, the same.
    CHECK(noise_of(q4(5, 6), false, 0, granules) == noise);
}

TEST_CASE("rounding at random is off by less than a step", "[quantizer][stochastic]") {
    random_source random(8);
    std::size_t beyond = 0;
    const auto check = [&]<class Q>(const Q& q, const std::vector<float>& block) {
        const auto params = fitted<Q>(block);
        for (const float noise : extreme_noise()) {
            for (const float x : block) {
                const double off = static_cast<double>(q.decode(q.encode(x, params, noise), params));
                if (!(std::fabs(off - static_cast<double>(x)) <= static_cast<double>(q.error_bound(x, params)))) {
                    ++beyond;
                }
            }
        }
    };
    for (const double scale : {1e-42, 1e-30, 1e-3, 1.0, 3e4, 1e37}) {
        const std::vector<float> block = normal_floats(128, random.next(), scale);
        check(q4{}, block);
        check(stochastic<block_integer<8, 128, asymmetric>>{}, block);
        check(stochastic<block_integer<4, 128, signed_absmax>>{}, block);
    }
    CHECK(beyond == 0);
}

TEST_CASE("blocks that hold NaN, Inf or nothing but zeros keep the laws with noise", "[quantizer][stochastic]") {
    const auto check = []<class Q>(const Q& q) {
        CAPTURE(q.name().str());
        const auto zeros = fitted<Q>({0.0f, -0.0f});
        for (const float noise : extreme_noise()) {
            CHECK(q.decode(q.encode(0.0f, zeros, noise), zeros) == 0.0f);
            CHECK(q.decode(q.encode(-0.0f, zeros, noise), zeros) == 0.0f);
            for (const float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
                const auto broken = fitted<Q>({1.0f, bad});
                CHECK(is_nan(q.decode(q.encode(1.0f, broken, noise), broken)));
                CHECK(is_nan(q.decode(q.encode(bad, broken, noise), broken)));
            }
        }
    };
    check(q4{});
    check(stochastic<block_integer<8, 64, asymmetric, half>>{});
    check(stochastic<block_integer<2, 64, signed_absmax, bfloat16>>{});
}
