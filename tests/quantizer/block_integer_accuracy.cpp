#include <zeropp/quantizer/block_integer.hpp>

#include "support/catch.hpp"
#include "support/integer_models.hpp"
#include "support/samples.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <vector>

namespace {

using namespace zeropp_test;
using zeropp::asymmetric;
using zeropp::bfloat16;
using zeropp::half;
using zeropp::signed_absmax;
using zeropp::symmetric;

constexpr std::size_t count = 1'000'000;

const std::vector<float>& gauss() {
    static const std::vector<float> values = normal_floats(count, 41);
    return values;
}

const std::vector<float>& heavy_tailed() {
    static const std::vector<float> values = [] {
        random_source random(42);
        std::vector<float> v(count);
        for (float& x : v) x = static_cast<float>(random.student_t3());
        return v;
    }();
    return values;
}

/// Signal to quantization noise in decibels; code(block) returns what a block comes back as.
double sqnr(const std::vector<float>& values, std::size_t block_size,
            const std::function<std::vector<float>(const std::vector<float>&)>& code) {
    double signal = 0;
    double noise = 0;
    for (std::size_t begin = 0; begin < values.size(); begin += block_size) {
        const std::size_t n = std::min(block_size, values.size() - begin);
        const auto first = values.begin() + static_cast<std::ptrdiff_t>(begin);
        const std::vector<float> block(first, first + static_cast<std::ptrdiff_t>(n));
        const std::vector<float> back = code(block);
        for (std::size_t i = 0; i != n; ++i) {
            const double x = static_cast<double>(block[i]);
            const double e = static_cast<double>(back[i]) - x;
            signal += x * x;
            noise += e * e;
        }
    }
    return 10.0 * std::log10(signal / noise);
}

template <class Q>
double sqnr_of(const std::vector<float>& values) {
    const auto q = describe<Q>();
    return sqnr(values, q.block_size, [&](const std::vector<float>& block) { return q.round_trip(block).decoded; });
}

/// The schemes by their definition, in double and with scales as they come.
template <int Bits, scheme How>
std::vector<float> by_definition(const std::vector<float>& block) {
    const auto [low, high] = std::minmax_element(block.begin(), block.end());
    const double least = static_cast<double>(*low);
    const double most = static_cast<double>(*high);
    const double extreme = std::fabs(least) > std::fabs(most) ? least : most;
    const double wide = 1 << (Bits - 1);
    double origin = 0;
    double first = -wide;
    double last = wide - 1;
    double step = extreme / -wide;
    if (How == scheme::symmetric) {
        first = -last;
        step = std::fabs(extreme) / last;
    } else if (How == scheme::asymmetric) {
        origin = least;
        first = 0;
        last = 2 * wide - 1;
        step = (most - least) / last;
    }
    std::vector<float> back;
    for (const float x : block) {
        const double code = std::clamp(std::nearbyint((static_cast<double>(x) - origin) / step), first, last);
        back.push_back(static_cast<float>(origin + code * step));
    }
    return back;
}

/// `table` was simulated beforehand; it leaves room for the sample, more where the tails are heavy. The same sample
/// through the definition leaves none but for the rounding of the scale.
template <class Q, scheme How>
void check_accuracy(const std::vector<float>& values, double table, double tolerance, double scale_tolerance = 0.01) {
    CAPTURE(Q::name().str());
    const double measured = sqnr_of<Q>(values);
    const double expected = sqnr(values, Q::block_size, by_definition<Q::code_bits, How>);
    CHECK(std::fabs(measured - table) <= tolerance);
    CHECK(std::fabs(measured - expected) <= scale_tolerance);
}

}  // namespace

TEST_CASE("accuracy on Gaussian values", "[quantizer][accuracy]") {
    constexpr auto even = scheme::symmetric;
    constexpr auto shifted = scheme::asymmetric;
    check_accuracy<zeropp::block_integer<8, 32>, even>(gauss(), 45.5, 0.1);
    check_accuracy<zeropp::block_integer<8, 128>, even>(gauss(), 43.8, 0.1);
    check_accuracy<zeropp::block_integer<8, 2048>, even>(gauss(), 41.7, 0.1);
    check_accuracy<zeropp::block_integer<8, 128, asymmetric>, shifted>(gauss(), 44.7, 0.1);
    check_accuracy<zeropp::block_integer<6, 128>, even>(gauss(), 31.6, 0.1);
    check_accuracy<zeropp::block_integer<6, 512>, even>(gauss(), 30.3, 0.1);
    check_accuracy<zeropp::block_integer<4, 32>, even>(gauss(), 20.3, 0.1);
    check_accuracy<zeropp::block_integer<4, 128>, even>(gauss(), 18.6, 0.1);
    check_accuracy<zeropp::block_integer<4, 128, symmetric, half>, even>(gauss(), 18.6, 0.1);
    check_accuracy<zeropp::block_integer<4, 128, symmetric, bfloat16>, even>(gauss(), 18.6, 0.15, 0.1);
    check_accuracy<zeropp::block_integer<4, 2048>, even>(gauss(), 16.5, 0.1);
    check_accuracy<zeropp::block_integer<4, 32, asymmetric>, shifted>(gauss(), 22.2, 0.1);
    check_accuracy<zeropp::block_integer<4, 128, asymmetric, half>, shifted>(gauss(), 20.0, 0.1);
}

TEST_CASE("accuracy on heavy-tailed values", "[quantizer][accuracy]") {
    constexpr auto even = scheme::symmetric;
    constexpr auto shifted = scheme::asymmetric;
    check_accuracy<zeropp::block_integer<8, 32>, even>(heavy_tailed(), 41.5, 0.5);
    check_accuracy<zeropp::block_integer<8, 128>, even>(heavy_tailed(), 37.3, 0.5);
    check_accuracy<zeropp::block_integer<8, 128, asymmetric>, shifted>(heavy_tailed(), 40.1, 0.5);
    check_accuracy<zeropp::block_integer<6, 128>, even>(heavy_tailed(), 25.2, 0.5);
    check_accuracy<zeropp::block_integer<4, 32>, even>(heavy_tailed(), 16.8, 0.5);
    check_accuracy<zeropp::block_integer<4, 128>, even>(heavy_tailed(), 13.0, 0.5);
    check_accuracy<zeropp::block_integer<4, 128, symmetric, half>, even>(heavy_tailed(), 13.0, 0.5);
    check_accuracy<zeropp::block_integer<4, 128, asymmetric, half>, shifted>(heavy_tailed(), 15.4, 0.5);
}

TEST_CASE("signed_absmax is more accurate than symmetric at few bits", "[quantizer][accuracy]") {
    using signed_half = zeropp::block_integer<4, 128, signed_absmax, half>;
    const double of_symmetric = sqnr_of<zeropp::block_integer<4, 128>>(heavy_tailed());
    check_accuracy<zeropp::block_integer<4, 128, signed_absmax>, scheme::signed_absmax>(heavy_tailed(),
                                                                                        of_symmetric + 1.1, 0.3);
    check_accuracy<signed_half, scheme::signed_absmax>(heavy_tailed(), of_symmetric + 1.1, 0.3);
}
