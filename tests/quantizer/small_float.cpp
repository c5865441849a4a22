#include <zeropp/quantizer/small_float.hpp>

#include "support/catch.hpp"
#include "support/floating_format.hpp"
#include "support/samples.hpp"
#include "support/small_float_format.hpp"

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace {

using namespace zeropp_test;
using zeropp::e2m1;
using zeropp::e2m3;
using zeropp::e3m2;
using zeropp::e4m3;
using zeropp::e5m2;

/// A format under test beside its definition.
struct format_model {
    const small_float_format& definition;
    std::uint32_t (*encode)(float);
    float (*decode)(std::uint32_t);
    float (*error_bound)(float);
};

template <class Format>
format_model model() {
    return {small_format_of<Format>(), [](float x) { return Format::encode(x); },
            [](std::uint32_t code) { return Format::decode(code); }, [](float x) { return Format::error_bound(x); }};
}

std::vector<format_model> all_models() {
    return {model<e4m3>(), model<e5m2>(), model<e2m3>(), model<e3m2>(), model<e2m1>()};
}

/// Every value, every middle of two, their neighbours among floats, what is too small and too large, and noise.
std::vector<float> telling_floats(const small_float_format& format) {
    std::vector<float> values;
    const auto with_neighbours = [&](double x) {
        const auto near = static_cast<float>(x);
        for (const float y : {near, std::nextafter(near, 1e30f), std::nextafter(near, -1e30f)}) {
            values.push_back(y);
            values.push_back(-y);
        }
    };
    for (std::size_t code = 0; code != format.values.size(); ++code) {
        with_neighbours(format.values[code]);
        if (code != 0) with_neighbours((format.values[code] + format.values[code - 1]) / 2);
    }
    for (const double above : {1.01, 1.0625, 1.1, 1.5, 2.0, 1e10, 1e33}) with_neighbours(format.largest() * above);
    for (const std::uint32_t bits : {1u, 12345u, 0x7fffffu, 0x800000u, 0x7f7fffffu})
        with_neighbours(static_cast<double>(float_of(bits)));
    random_source random(61);
    for (int i = 0; i != 20'000; ++i) {
        if (const float x = random.any_float(); is_finite(static_cast<double>(x))) values.push_back(x);
        values.push_back(static_cast<float>(random.normal() * format.largest() * std::ldexp(0.5, -(i % 20))));
    }
    return values;
}

}  // namespace

TEST_CASE("small floats round to the nearest value, ties to even, and saturate", "[quantizer][small_float]") {
    for (const auto& m : all_models()) {
        std::size_t wrong = 0;
        float first = 0.0f;
        for (const float x : telling_floats(m.definition)) {
            if (m.encode(x) != m.definition.nearest(static_cast<double>(x)) && wrong++ == 0) first = x;
        }
        CAPTURE(m.definition.name, text_of(first));
        CHECK(wrong == 0);
    }
}

TEST_CASE("small floats decode to their values, and those encode to themselves", "[quantizer][small_float]") {
    for (const auto& m : all_models()) {
        CAPTURE(m.definition.name);
        for (std::uint32_t code = 0; code != m.definition.values.size(); ++code) {
            for (const std::uint32_t either : {code, code | m.definition.sign_bit()}) {
                CHECK(same(m.decode(either), static_cast<float>(m.definition.value(either))));
                CHECK(m.encode(m.decode(either)) == either);
            }
        }
    }
}

TEST_CASE("small floats take what is not finite for the largest value", "[quantizer][small_float]") {
    for (const auto& m : all_models()) {
        CAPTURE(m.definition.name);
        const auto largest = static_cast<std::uint32_t>(m.definition.values.size() - 1);
        for (const std::uint32_t bits : {0x7f800000u, 0x7f800001u, 0x7fc00000u, 0x7fffffffu}) {
            CHECK(m.encode(float_of(bits)) == largest);
            CHECK(m.encode(float_of(bits | 0x80000000u)) == (largest | m.definition.sign_bit()));
        }
    }
}

TEST_CASE("the figures of the specifications", "[quantizer][small_float]") {
    constexpr float infinity = std::numeric_limits<float>::infinity();
    // OFP8, table 1.
    STATIC_REQUIRE(e4m3::bits == 8);
    STATIC_REQUIRE(e4m3::largest == 448.0f);
    STATIC_REQUIRE(e4m3::largest_exponent == 8);
    STATIC_REQUIRE(e4m3::decode(0x08) == 0x1p-6f);
    STATIC_REQUIRE(e4m3::decode(0x07) == 0.875f * 0x1p-6f);
    STATIC_REQUIRE(e4m3::decode(0xfe) == -448.0f);
    STATIC_REQUIRE(e5m2::bits == 8);
    STATIC_REQUIRE(e5m2::largest == 57344.0f);
    STATIC_REQUIRE(e5m2::largest_exponent == 15);
    STATIC_REQUIRE(e5m2::decode(0x04) == 0x1p-14f);
    STATIC_REQUIRE(e5m2::decode(0x03) == 0.75f * 0x1p-14f);
    STATIC_REQUIRE(e5m2::decode(0x7c) == infinity);
    STATIC_REQUIRE(e5m2::decode(0xfc) == -infinity);
    // MX, tables 3 to 5.
    STATIC_REQUIRE(e2m3::largest == 7.5f);
    STATIC_REQUIRE(e2m3::largest_exponent == 2);
    STATIC_REQUIRE(e2m3::decode(0x07) == 0.875f);
    STATIC_REQUIRE(e3m2::largest == 28.0f);
    STATIC_REQUIRE(e3m2::largest_exponent == 4);
    STATIC_REQUIRE(e3m2::decode(0x03) == 0.1875f);
    STATIC_REQUIRE(e2m1::largest == 6.0f);
    STATIC_REQUIRE(e2m1::largest_exponent == 2);
    STATIC_REQUIRE(e2m1::encode(2.5f) == 4);
    STATIC_REQUIRE(e2m1::encode(-5.0f) == 14);
    for (const std::uint32_t nan : {0x7fu, 0xffu}) CHECK(is_nan(e4m3::decode(nan)));
    for (const std::uint32_t nan : {0x7du, 0x7eu, 0x7fu, 0xfdu, 0xffu}) CHECK(is_nan(e5m2::decode(nan)));
    CHECK(e4m3::name().str() == "e4m3");
    CHECK(e2m1::name().str() == "e2m1");
}

TEST_CASE("small floats are off by what they say, and that is tight", "[quantizer][small_float]") {
    for (const auto& m : all_models()) {
        std::size_t wrong = 0;
        std::vector<double> closest(m.definition.values.size() + 1);
        for (const float x : telling_floats(m.definition)) {
            const double exact = static_cast<double>(x);
            const double error = std::fabs(m.definition.value(m.definition.nearest(exact)) - exact);
            const double bound = static_cast<double>(m.error_bound(x));
            // What is clipped is itself rounded to a float.
            if (!(error <= bound * (1 + 0x1p-23))) ++wrong;
            const bool clipped = std::fabs(exact) > m.definition.largest();
            double& ratio = closest[clipped ? m.definition.values.size() : m.definition.nearest(std::fabs(exact))];
            ratio = std::max(ratio, error / bound);
        }
        CAPTURE(m.definition.name);
        CHECK(wrong == 0);
        for (std::size_t code = 0; code != closest.size(); ++code) {
            CAPTURE(code);
            // The binade below a power of two has half its unit, and the largest value nothing above to round from.
            CHECK(closest[code] > 0.49);
        }
        CHECK(closest.back() > 0.999);
    }
}

TEST_CASE("powers of two in 8 bits", "[quantizer][small_float]") {
    for (int bits = 0; bits != 255; ++bits) {
        const zeropp::e8m0 scale{static_cast<std::uint8_t>(bits)};
        CHECK(static_cast<double>(static_cast<float>(scale)) == std::ldexp(1.0, bits - 127));
    }
    CHECK(is_nan(static_cast<float>(zeropp::e8m0{0xff})));
}
