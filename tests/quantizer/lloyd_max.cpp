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
#include <iterator>
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
    zeropp::detail::refit_blocks(Q{}, block.data(), block.size(), &params);
    return params;
}

template <class Q>
float through(float x, const typename Q::params& p) {
    return Q{}.decode(Q{}.encode(x, p), p);
}

/// Squared errors of blocks with the scales that were found, and with the best of sixteen by brute force.
struct squared_errors {
    double found = 0;
    double least = 0;
};

template <class Q>
squared_errors errors_of(const normal_optimum& optimum, const std::vector<float>& block) {
    const auto error = [&](double scale) {
        double sum = 0;
        for (const float x : block) {
            const double off = static_cast<double>(x) - nearest(optimum, scale, 1.0, x);
            sum += off * off;
        }
        return sum;
    };
    double absmax = 0;
    for (const float x : block) absmax = std::max(absmax, std::fabs(static_cast<double>(x)));
    const int top = static_cast<int>(std::ceil(4 * std::log2(absmax) - 1e-6)) + 160;
    double least = std::numeric_limits<double>::infinity();
    for (int power = std::max(1, top - 15); power <= top; ++power) {
        least = std::min(least, error(scale_of(static_cast<std::uint8_t>(power))));
    }
    return {error(scale_of(found<Q>(block).power)), least};
}

template <int Levels, class Bias>
void check_against_optimum() {
    using Q = lloyd_max<Levels, 128, Bias>;
    CAPTURE(Q::name().str());
    const normal_optimum optimum(Levels);
    const double gain = std::is_same_v<Bias, unbiased> ? 1 / (1 - optimum.lost) : 1.0;
    random_source random(Levels);
    std::size_t wrong_values = 0;
    squared_errors all;
    for (const float size : {1.0f, 1e-4f, 3e-9f, 2000.0f}) {
        for (int round = 0; round != 50; ++round) {
            std::vector<float> block(round % 2 == 0 ? 128 : 1 + random.below(127));
            for (float& x : block) x = static_cast<float>(random.normal()) * size;
            const auto p = found<Q>(block);
            const squared_errors errors = errors_of<Q>(optimum, block);
            all.found += errors.found / static_cast<double>(size) / static_cast<double>(size);
            all.least += errors.least / static_cast<double>(size) / static_cast<double>(size);
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
    CHECK(all.found <= 1.01 * all.least);
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

/// Blocks of 128 numbers of other distributions than the levels are for.
template <int Levels>
void check_data() {
    const normal_optimum optimum(Levels);
    random_source random(17);
    const auto heavy = [&] {
        // Student's t with three degrees of freedom.
        const double a = random.normal(), b = random.normal(), c = random.normal();
        return random.normal() / std::sqrt((a * a + b * b + c * c) / 3);
    };
    const auto check = [&](const char* name, const auto& draw) {
        squared_errors all;
        for (int round = 0; round != 400; ++round) {
            std::vector<float> block(128);
            double absmax = 0;
            for (float& x : block) {
                x = static_cast<float>(draw());
                absmax = std::max(absmax, std::fabs(static_cast<double>(x)));
            }
            if (absmax == 0) continue;
            const squared_errors errors = errors_of<lloyd_max<Levels, 128>>(optimum, block);
            all.found += errors.found;
            all.least += errors.least;
        }
        CAPTURE(Levels, name, all.found / all.least);
        CHECK(all.found <= 1.01 * all.least);
    };
    check("heavy tails", heavy);
    check("uniform", [&] { return random.uniform() - 0.5; });
    check("one in ten", [&] { return random.below(10) == 0 ? random.normal() : 0.0; });
    check("two sizes", [&] { return random.normal() * (random.below(2) == 0 ? 1.0 : 0.1); });
}

/// The sums of parts, merged from either end, are the sums of all, and those that doubles say.
template <int Levels>
void check_sums() {
    using Q = lloyd_max<Levels, 65536>;
    random_source random(5);
    std::size_t wrong = 0;
    for (int round = 0; round != 6; ++round) {
        // The most there is: every element as large as the scale.
        std::vector<float> block(65536, 1.0f);
        if (round != 0) {
            for (float& x : block) x = round == 1 ? random.any_float() : static_cast<float>(random.normal());
        }
        if (round == 1) block[7] = std::numeric_limits<float>::quiet_NaN();
        typename Q::stats stats;
        for (const float x : block) stats.add(x);
        const auto fitted = Q{}.fit(stats);
        std::vector<typename Q::sums> parts(1 + random.below(9));
        typename Q::sums whole, left, right;
        std::uint64_t magnitudes = 0;
        for (const float x : block) {
            parts[random.below(parts.size())].add(x, fitted);
            whole.add(x, fitted);
            const double size = std::fabs(static_cast<double>(x)) / scale_of(fitted.power);
            if (round != 1) magnitudes += static_cast<std::uint64_t>(size * 32768);
        }
        for (std::size_t p = 0; p != parts.size(); ++p) {
            left.merge(parts[p]);
            typename Q::sums next = parts[parts.size() - 1 - p];
            next.merge(right);
            right = next;
        }
        if (!std::equal(std::begin(whole.of), std::end(whole.of), std::begin(left.of))) ++wrong;
        if (!std::equal(std::begin(whole.of), std::end(whole.of), std::begin(right.of))) ++wrong;
        if (whole.of[0] != 65536) ++wrong;
        // The scale and its reciprocal are rounded.
        if (std::fabs(static_cast<double>(magnitudes) - whole.of[1]) > 65536.0) ++wrong;
        if (Q{}.refit(fitted, left).power != Q{}.refit(fitted, whole).power) ++wrong;
        if (round == 1 && Q{}.refit(fitted, whole).power != 255) ++wrong;
    }
    CHECK(wrong == 0);
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
        // A NaN makes every code of its block zero.
        if (is_nan(other)) CHECK((Q{}.encode(float_of(0xffc00000u), p) == 0 && Q{}.encode(-1.0f, p) == 0));
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
        std::vector<float> few_large(64, x * 0.01f);
        few_large[static_cast<std::size_t>(power) % 64] = x;
        CHECK(Q{}.extent(found<Q>(few_large)) >= x);
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

TEST_CASE("lloyd_max: unbiased codes lose nothing on average, those of least error what they must",
          "[quantizer][accuracy]") {
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

TEST_CASE("lloyd_max: the error is at most 1 % above that of the best of sixteen scales, whatever the data",
          "[quantizer]") {
    check_data<2>();
    check_data<3>();
    check_data<4>();
}

TEST_CASE("lloyd_max: sums merge in any order, and hold the largest blocks", "[quantizer]") {
    check_sums<2>();
    check_sums<3>();
    check_sums<4>();
}

TEST_CASE("lloyd_max: its name", "[quantizer]") {
    CHECK(lloyd_max<2, 128>::name().str() == "lloyd2:128");
    CHECK(lloyd_max<4, 32, unbiased>::name().str() == "lloyd4:32:unbiased");
    CHECK(zeropp::hadamard<lloyd_max<3, 128, unbiased>, 128>{}.name().str() == "lloyd3:128:unbiased:h128");
}
