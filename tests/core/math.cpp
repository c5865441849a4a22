#include <zeropp/core/math.hpp>

#include "support/catch.hpp"
#include "support/floating_format.hpp"
#include "support/samples.hpp"

#include <cmath>
#include <cstdint>
#include <limits>

namespace {

using namespace zeropp_test;

constexpr std::size_t size_max = std::numeric_limits<std::size_t>::max();
constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float largest = std::numeric_limits<float>::max();

}  // namespace

TEST_CASE("ceil_div and round_up follow their definition", "[core][math]") {
    for (std::size_t b = 1; b != 70; ++b) {
        for (std::size_t a = 0; a != 300; ++a) {
            const std::size_t q = zeropp::ceil_div(a, b);
            const bool smallest = q * b >= a && (q == 0 || (q - 1) * b < a);
            const std::size_t m = zeropp::round_up(a, b);
            if (!smallest || m % b != 0 || m < a || m >= a + b) {
                CAPTURE(a, b, q, m);
                FAIL_CHECK("not the smallest");
            }
        }
    }
    static_assert(zeropp::ceil_div(17, 8) == 3 && zeropp::round_up(17, 16) == 32);
}

TEST_CASE("sizes near the largest do not wrap", "[core][math]") {
    CHECK(zeropp::ceil_div(size_max, 1) == size_max);
    CHECK(zeropp::ceil_div(size_max, 2) == size_max / 2 + 1);
    CHECK(zeropp::ceil_div(size_max, size_max) == 1);
    CHECK(zeropp::ceil_div(size_max - 1, size_max) == 1);
    CHECK(zeropp::round_up(size_max - 15, 16) == size_max - 15);
    CHECK(zeropp::round_up(size_max - 30, 16) == size_max - 15);
    CHECK(zeropp::round_up(size_max, 1) == size_max);
    CHECK(zeropp::round_up(0, 16) == 0);
}

TEST_CASE("product and quotient round correctly", "[core][math]") {
    random_source random(2);
    std::size_t wrong = 0;
    for (int i = 0; i != 500'000; ++i) {
        const float a = random.any_float();
        const float b = i % 2 == 0 ? random.any_float() : static_cast<float>(random.normal());
        // Neither double result needs to be exact: rounding it to float once more gives the float nearest to the true
        // one, as double has more than twice float's digits.
        const float p = static_cast<float>(static_cast<double>(a) * static_cast<double>(b));
        const float q = static_cast<float>(static_cast<double>(a) / static_cast<double>(b));
        const float product = zeropp::product(a, b);
        if (p == 0.0f ? product != 0.0f : !same(product, p)) ++wrong;
        if (std::fabs(q) >= std::numeric_limits<float>::min() && !same(zeropp::quotient(a, b), q)) ++wrong;
    }
    CHECK(wrong == 0);
    CHECK(is_nan(zeropp::product(0.0f, infinity)));
    CHECK(zeropp::product(largest, 2.0f) == infinity);
    CHECK(zeropp::product(-largest, 2.0f) == -infinity);
    CHECK(zeropp::product(float_of(1), 0.5f) == 0.0f);
    CHECK(zeropp::product(float_of(3), 0.5f) == float_of(2));
    CHECK(zeropp::quotient(-1.0f, 0.0f) == -infinity);
    static_assert(zeropp::product(3.0f, 0.5f) == 1.5f && zeropp::quotient(3.0f, 2.0f) == 1.5f);
}

TEST_CASE("a product that is zero is positive zero", "[core][math]") {
    CHECK(bits_of(zeropp::product(-0.0f, 5.0f)) == 0);
    CHECK(bits_of(zeropp::product(0.0f, -5.0f)) == 0);
    CHECK(bits_of(zeropp::product(0.0f, 5.0f)) == 0);
    CHECK(bits_of(zeropp::product(-0.0f, -0.0f)) == 0);
}

TEST_CASE("float bits and back", "[core][math]") {
    CHECK(zeropp::float_bits(1.0f) == 0x3f800000u);
    CHECK(zeropp::float_bits(-0.0f) == 0x80000000u);
    CHECK(zeropp::bits_float(0x7f7fffffu) == largest);
    CHECK(zeropp::float_bits(infinity) == zeropp::infinity_bits);
    CHECK(zeropp::float_bits(zeropp::quiet_nan) == 0x7fc00000u);
}

TEST_CASE("is_finite", "[core][math]") {
    for (const float x : {0.0f, -0.0f, float_of(1), largest, -largest, 1.0f}) CHECK(zeropp::is_finite(x));
    for (const std::uint32_t bits : {0x7f800000u, 0xff800000u, 0x7f800001u, 0xffffffffu, 0x7fc00000u}) {
        CHECK_FALSE(zeropp::is_finite(float_of(bits)));
    }
}
