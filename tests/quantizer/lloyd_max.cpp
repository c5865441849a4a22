#include <zeropp/quantizer/lloyd_max.hpp>

#include <zeropp/codec/host/write.hpp>
#include <zeropp/quantizer/hadamard.hpp>

#include "conformance/quantizer_laws.hpp"
#include "support/catch.hpp"
#include "support/samples.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numbers>
#include <vector>

namespace {

using namespace zeropp_test;
using zeropp::least_error;
using zeropp::lloyd_max;
using zeropp::unbiased;

double density(double x) { return std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi); }
double below(double x) { return 0.5 * std::erfc(-x / std::numbers::sqrt2); }

/// The levels on the positive side, from zero on, by Lloyd's iteration on the normal distribution itself: each is the
/// mean of what is nearer to it than to its neighbours.
struct normal_optimum {
    std::vector<double> levels;
    std::vector<double> limits;  // between them, and infinity behind the last
    double lost = 0;             // of an energy of 1

    explicit normal_optimum(int count) {
        const bool with_zero = count % 2 == 1;
        for (int i = 0; i != (count + 1) / 2; ++i) levels.push_back(with_zero ? i : i + 0.5);
        for (int round = 0; round != 10000; ++round) {
            limits.clear();
            for (std::size_t i = 0; i + 1 < levels.size(); ++i) limits.push_back((levels[i] + levels[i + 1]) / 2);
            limits.push_back(std::numeric_limits<double>::infinity());
            double kept = 0;
            for (std::size_t i = 0; i != levels.size(); ++i) {
                const double from = i == 0 ? 0.0 : limits[i - 1];
                const double weight = below(limits[i]) - below(from);
                const bool zero = with_zero && i == 0;
                levels[i] = zero ? 0.0 : (density(from) - density(limits[i])) / weight;
                kept += 2 * weight * levels[i] * levels[i];
            }
            lost = 1 - kept;
        }
    }
};

/// Of a quantizer with this scale: what the levels of the documentation make of x, in double.
double nearest(const normal_optimum& optimum, double scale, double gain, float x) {
    const double unit = scale / optimum.levels.back();
    std::size_t i = 0;
    while (std::fabs(static_cast<double>(x)) > optimum.limits[i] * unit) ++i;
    return std::copysign(optimum.levels[i] * unit * gain, static_cast<double>(x));
}

double scale_of(std::uint8_t power) { return std::exp2((power - 160) / 4.0); }

/// What the host's codec makes of one block.
template <class Q>
typename Q::params found(const std::vector<float>& block) {
    typename Q::params params;
    zeropp::detail::fit_blocks(Q{}, block.data(), block.size(), &params);
    return params;
}

template <class Q>
float through(float x, const typename Q::params& p) {
    return Q{}.decode(Q{}.encode(x, p), p);
}

template <int Levels, class Bias>
void check_against_optimum() {
    using Q = lloyd_max<Levels, 128, Bias>;
    CAPTURE(Q::name().str());
    const normal_optimum optimum(Levels);
    const double gain = std::is_same_v<Bias, unbiased> ? 1 / (1 - optimum.lost) : 1.0;
    random_source random(Levels);
    std::size_t wrong_values = 0;
    std::size_t wrong_scales = 0;
    for (const float size : {1.0f, 1e-4f, 3e-9f, 2000.0f}) {
        for (int round = 0; round != 50; ++round) {
            std::vector<float> block(round % 2 == 0 ? 128 : 1 + random.below(127));
            for (float& x : block) x = static_cast<float>(random.normal()) * size;
            const auto absmax = static_cast<double>(std::fabs(*std::max_element(
                block.begin(), block.end(), [](float a, float b) { return std::fabs(a) < std::fabs(b); })));
            const auto p = found<Q>(block);
            // Least error, of the levels as they are, among the sixteen scales; by brute force.
            const auto error = [&](double scale) {
                double sum = 0;
                for (const float x : block) {
                    const double off = static_cast<double>(x) - nearest(optimum, scale, 1.0, x);
                    sum += off * off;
                }
                return sum;
            };
            const int top = static_cast<int>(std::ceil(4 * std::log2(absmax) - 1e-6)) + 160;
            double least = std::numeric_limits<double>::infinity();
            for (int power = std::max(1, top - 15); power <= top; ++power) {
                least = std::min(least, error(scale_of(static_cast<std::uint8_t>(power))));
            }
            if (!(error(scale_of(p.power)) <= least * 1.003 + 1e-7 * absmax * absmax)) ++wrong_scales;
            for (const float x : block) {
                const double expected = nearest(optimum, scale_of(p.power), gain, x);
                // Where the table's four digits decide, either level will do.
                const double other = nearest(optimum, scale_of(p.power), gain, x * 1.002f);
                const double one_more = nearest(optimum, scale_of(p.power), gain, x * 0.998f);
                const auto got = static_cast<double>(through<Q>(x, p));
                const auto near = [&](double v) { return std::fabs(got - v) <= 1e-3 * scale_of(p.power); };
                if (!(near(expected) || near(other) || near(one_more))) ++wrong_values;
            }
        }
    }
    CHECK(wrong_values == 0);
    CHECK(wrong_scales == 0);
}

/// How much of normal data arrives, as a part of their energy: the mean of <x, decoded> / <x, x>.
template <class Q>
double arriving() {
    random_source random(9);
    double products = 0;
    double squares = 0;
    for (int round = 0; round != 4000; ++round) {
        std::vector<float> block(128);
        for (float& x : block) x = static_cast<float>(random.normal());
        const auto p = found<Q>(block);
        for (const float x : block) {
            products += static_cast<double>(x) * static_cast<double>(through<Q>(x, p));
            squares += static_cast<double>(x) * static_cast<double>(x);
        }
    }
    return products / squares;
}

template <class Q>
void check_edges() {
    CAPTURE(Q::name().str());
    // Around the ends of what a byte can say.
    const float largest = std::exp2(23.5f);
    const float smallest = 0x1p-40f;
    for (const float sign : {1.0f, -1.0f}) {
        CHECK(is_nan(through<Q>(sign, found<Q>({sign * largest * 1.001f}))));
        CHECK(zeropp::is_finite(through<Q>(sign * largest * 0.999f, found<Q>({sign * largest * 0.999f}))));
        CHECK(through<Q>(sign * smallest, found<Q>({sign * smallest})) == 0.0f);
        CHECK(Q{}.extent(found<Q>({sign * smallest})) >= smallest);
        CHECK(through<Q>(sign * smallest * 1.5f, found<Q>({sign * smallest * 1.5f})) * sign > 0.0f);
    }
    // Which zero, and which NaN, is not on the wire.
    for (const float other : {0.0f, 1.0f, std::numeric_limits<float>::quiet_NaN()}) {
        const auto p = found<Q>({other, 0.0f});
        CHECK(Q{}.encode(0.0f, p) == Q{}.encode(-0.0f, p));
        CHECK(Q{}.encode(float_of(0x7fc00000u), p) == Q{}.encode(float_of(0xffc00000u), p));
    }
    // Every scale there is: an element of its size keeps sign and magnitude, and nothing else is fitted to it.
    for (int power = 1; power != 255; ++power) {
        CAPTURE(power);
        const auto x = static_cast<float>(scale_of(static_cast<std::uint8_t>(power)) * 0.97);
        typename Q::stats stats;
        stats.add(-x);
        const auto p = Q{}.fit(stats);
        CHECK(int{p.power} == power);
        CHECK(through<Q>(x, p) > 0.0f);
        CHECK(through<Q>(-x, p) == -through<Q>(x, p));
        CHECK(Q{}.extent(Q{}.candidate(p, Q::candidates - 1)) >= x);
    }
}

}  // namespace

TEST_CASE("lloyd_max: the laws of quantizers", "[quantizer]") {
    check_quantizer_laws(describe<lloyd_max<2, 8>>());
    check_quantizer_laws(describe<lloyd_max<2, 128, unbiased>>());
    check_quantizer_laws(describe<lloyd_max<3, 64, unbiased>>());
    check_quantizer_laws(describe<lloyd_max<3, 128>>());
    check_quantizer_laws(describe<lloyd_max<4, 2048>>());
    check_quantizer_laws(describe<lloyd_max<4, 16, unbiased>>());
}

TEST_CASE("lloyd_max: levels, thresholds and scales are a normal distribution's best", "[quantizer]") {
    check_against_optimum<2, least_error>();
    check_against_optimum<2, unbiased>();
    check_against_optimum<3, least_error>();
    check_against_optimum<3, unbiased>();
    check_against_optimum<4, least_error>();
    check_against_optimum<4, unbiased>();
}

TEST_CASE("lloyd_max: unbiased codes lose nothing on average, those of least error what they must", "[quantizer]") {
    const auto lost = [](int levels) { return normal_optimum(levels).lost; };
    // A scale is off by up to an eighth of an octave, and found for the block's own elements.
    CHECK(std::fabs(arriving<lloyd_max<2, 128, unbiased>>() - (1.0)) < 0.01);
    CHECK(std::fabs(arriving<lloyd_max<3, 128, unbiased>>() - (1.0)) < 0.01);
    CHECK(std::fabs(arriving<lloyd_max<4, 128, unbiased>>() - (1.0)) < 0.01);
    CHECK(std::fabs(arriving<lloyd_max<2, 128>>() - (1.0 - lost(2))) < 0.01);
    CHECK(std::fabs(arriving<lloyd_max<3, 128>>() - (1.0 - lost(3))) < 0.01);
    CHECK(std::fabs(arriving<lloyd_max<4, 128>>() - (1.0 - lost(4))) < 0.01);
}

TEST_CASE("lloyd_max: the ends of its range, and signs that are not sent", "[quantizer]") {
    check_edges<lloyd_max<2, 64>>();
    check_edges<lloyd_max<3, 64, unbiased>>();
    check_edges<lloyd_max<4, 64, unbiased>>();
}

TEST_CASE("lloyd_max: errors add up to less than 32 bits", "[quantizer]") {
    using Q = lloyd_max<4, 65536>;
    random_source random(5);
    std::size_t wrong = 0;
    for (int i = 0; i != 5000; ++i) {
        typename Q::stats stats;
        const float a = i % 2 == 0 ? random.any_float() : static_cast<float>(random.normal());
        const float b = i % 3 == 0 ? random.any_float() : static_cast<float>(random.normal());
        stats.add(a);
        const auto fitted = Q{}.fit(stats);
        for (const int k : {0, 1, Q::candidates - 1}) {
            const auto p = Q{}.candidate(fitted, k);
            const std::uint32_t error = Q{}.error(b, p, fitted);
            if (error > 0x80000000u / 65536u) ++wrong;
            // Of an element of the block, what it says: as a part of the scale's square, in 2^30 / 65536.
            const bool decodes = fitted.power != 0 && fitted.power != 255;
            if (!decodes || !(std::fabs(b) <= std::fabs(a))) continue;
            const double off =
                (static_cast<double>(b) - static_cast<double>(through<Q>(b, p))) / scale_of(fitted.power);
            if (std::fabs(off * off * 0x1p14 - static_cast<double>(error)) > 1.001) ++wrong;
        }
    }
    CHECK(wrong == 0);
}

TEST_CASE("lloyd_max: its name", "[quantizer]") {
    CHECK(lloyd_max<2, 128>::name().str() == "lloyd2:128");
    CHECK(lloyd_max<4, 32, unbiased>::name().str() == "lloyd4:32:unbiased");
    CHECK(zeropp::hadamard<lloyd_max<3, 128, unbiased>, 128>{}.name().str() == "lloyd3:128:unbiased:h128");
}
