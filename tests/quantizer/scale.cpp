#include <zeropp/quantizer/scale.hpp>

#include "support/catch.hpp"
#include "support/floating_format.hpp"
#include "support/integer_models.hpp"
#include "support/samples.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace {

using namespace zeropp_test;
using zeropp::bfloat16;
using zeropp::half;

constexpr float largest = std::numeric_limits<float>::max();

std::vector<float> telling_floats() {
    std::vector<float> values{0.0f,         -0.0f,
                              largest,      -largest,
                              65504.0f,     65505.0f,
                              -65504.0f,    -65505.0f,
                              65519.0f,     65520.0f,
                              0x1.fep127f,  0x1.fe0002p127f,
                              -0x1.fep127f, -0x1.fe0002p127f,
                              0x1p-24f,     0x1.8p-24f,
                              0x1p-26f,     -0x1p-26f,
                              float_of(1),  float_of(0x80000001u),
                              0x1p-126f,    1.0f,
                              1.0001f,      -1.0001f};
    for (const std::uint32_t bits : {0x7f800000u, 0xff800000u, 0x7fc00000u, 0xffc00000u})
        values.push_back(float_of(bits));
    random_source random(31);
    for (int i = 0; i != 100'000; ++i) {
        values.push_back(random.any_float());
        values.push_back(
            static_cast<float>(random.normal() * std::ldexp(1.0, static_cast<int>(random.below(50)) - 30)));
    }
    return values;
}

template <class S>
float number(S s) {
    return static_cast<float>(s);
}

}  // namespace

TEMPLATE_TEST_CASE("scales are rounded away from zero, minima down", "[quantizer][scale]", float, half, bfloat16) {
    const floating_format format = format_of<TestType>;
    std::size_t wrong = 0;
    float first = 0.0f;
    for (const float x : telling_floats()) {
        const float away = number(zeropp::round_away_from_zero<TestType>(x));
        const float down = number(zeropp::round_down<TestType>(x));
        bool right = false;
        if (!is_finite(static_cast<double>(x))) {
            // Infinity has no place in half's or bfloat16's range; +Inf rounded down may be the largest value.
            right = is_nan(away) && (is_nan(down) || (x > 0 && sizeof(TestType) == 2));
        } else {
            const double magnitude = std::fabs(static_cast<double>(x));
            const double up = format.value(format.ceil(magnitude));
            const double below = format.value(std::min(format.floor(magnitude), format.infinity() - 1));
            const double expected_away = x < 0 ? -up : up;
            const double expected_down = x < 0 ? -up : below;
            right = (is_finite(up) ? static_cast<double>(away) == expected_away : is_nan(away)) &&
                    (is_finite(expected_down) ? static_cast<double>(down) == expected_down : is_nan(down)) &&
                    (away == 0.0f || is_nan(away) || std::signbit(away) == std::signbit(x));
        }
        if (!right && wrong++ == 0) first = x;
    }
    CAPTURE(first);
    CHECK(wrong == 0);
}

TEMPLATE_TEST_CASE("stored steps are large enough, not too large, and decode to finite values", "[quantizer][scale]",
                   float, half, bfloat16) {
    const floating_format format = format_of<TestType>;
    std::size_t wrong = 0;
    random_source random(32);
    for (const int top : {1, 3, 7, 15, 31, 63, 127, 128, 255}) {
        const float reach = static_cast<float>(top);
        for (int i = 0; i != 4000; ++i) {
            const float extent =
                i % 2 == 0 ? std::fabs(random.any_float())
                           : static_cast<float>(static_cast<double>(largest) * (1.0 - random.uniform() * 0.02));
            if (!is_finite(static_cast<double>(extent))) continue;
            const float ideal = extent / reach;
            const float step = number(zeropp::stored_step<TestType>(extent, reach));
            const double up = format.value(format.ceil(static_cast<double>(ideal)));
            if (is_nan(step)) {
                // Only where the type has no such step, or has one so coarse that the furthest code overflows.
                const bool overflows = !is_finite(static_cast<double>(static_cast<float>(up * top)));
                if (is_finite(up) && (sizeof(TestType) == 4 || !overflows)) ++wrong;
                continue;
            }
            const double reached = static_cast<double>(step) * top;
            if (!is_finite(static_cast<double>(step * reach))) ++wrong;
            if (reached < static_cast<double>(extent) - static_cast<double>(step) * 0x1p-13) ++wrong;
            if (ideal >= 0x1p-126f && static_cast<double>(step) > up) ++wrong;
            if (extent > 0 && step < 0x1p-126f) ++wrong;
            // A negative extent gives the negative of the step.
            if (number(zeropp::stored_step<TestType>(-extent, reach)) != -step) ++wrong;
            if (number(zeropp::stored_step<TestType>(extent, -reach)) != -step) ++wrong;
        }
    }
    CHECK(wrong == 0);
    CHECK(number(zeropp::stored_step<TestType>(0.0f, 7.0f)) == 0.0f);
    CHECK(number(zeropp::stored_step<TestType>(float_of(1), 7.0f)) ==
          (sizeof(TestType) == 2 && format.exponent_bits == 5 ? 0x1p-24f : 0x1p-126f));
    CHECK(is_nan(number(zeropp::stored_step<TestType>(float_of(0x7fc00000u), 7.0f))));
    CHECK(is_nan(number(zeropp::stored_step<TestType>(float_of(0x7f800000u), 7.0f))));
}

TEST_CASE("a step that would have to clip is refused", "[quantizer][scale]") {
    // 255 steps of any bfloat16 at or above these overflow; 255 of the next smaller miss the extreme by a whole step.
    CHECK(is_nan(number(zeropp::stored_step<bfloat16>(largest, 255.0f))));
    CHECK(is_nan(number(zeropp::stored_step<bfloat16>(largest / 2, 255.0f, largest / 2))));
    CHECK(number(zeropp::stored_step<bfloat16>(0.99f * largest, 255.0f)) == 0x1.fep119f);
    // A float misses by next to nothing.
    CHECK(zeropp::stored_step<float>(largest, 7.0f) * 7.0f > 0.9999999f * largest);
    CHECK(zeropp::stored_step<float>(largest, 255.0f) * 255.0f > 0.999999f * largest);
}

TEST_CASE("the nearest code rounds ties to even and keeps its bounds", "[quantizer][scale]") {
    using zeropp::nearest_code;
    constexpr float infinity = std::numeric_limits<float>::infinity();
    CHECK(nearest_code(0.5f, 1.0f, -127, 127) == 0);
    CHECK(nearest_code(1.5f, 1.0f, -127, 127) == 2);
    CHECK(nearest_code(2.5f, 1.0f, -127, 127) == 2);
    CHECK(nearest_code(-1.5f, 1.0f, -127, 127) == -2);
    CHECK(nearest_code(-1.5f, -0.5f, -8, 7) == 3);
    CHECK(nearest_code(-4.0f, -0.5f, -8, 7) == 7);
    CHECK(nearest_code(4.0f, -0.5f, -8, 7) == -8);
    CHECK(nearest_code(127.49f, 1.0f, -127, 127) == 127);
    CHECK(nearest_code(1e30f, 1.0f, -127, 127) == 127);
    CHECK(nearest_code(-infinity, 1.0f, -127, 127) == -127);
    CHECK(nearest_code(-3.0f, 1.0f, 0, 255) == 0);
    CHECK(nearest_code(1.0f, zeropp::smallest_step, -8, 7) == 7);
    CHECK(nearest_code(largest, largest, -8, 7) == 1);
    static_assert(nearest_code(3.7f, 1.0f, 0, 15) == 4);
    // Blocks without extent.
    for (const float x : {0.0f, -0.0f, 1.0f, -largest}) {
        CHECK(nearest_code(x, 0.0f, -8, 7) == 0);
        CHECK(nearest_code(x, -0.0f, 0, 15) == 0);
    }
    // Blocks that decode to NaN.
    for (const float step : {float_of(0x7fc00000u), float_of(0xffc00000u)}) {
        for (const float x : {0.0f, -1.0f, largest, infinity, float_of(0x7fc00000u), float_of(0xffc00000u)}) {
            CHECK(nearest_code(x, step, -8, 7) == 0);
            CHECK(nearest_code(x, step, 0, 15) == 0);
        }
    }
}

TEST_CASE("the nearest code is that of its definition, as far as it says", "[quantizer][scale]") {
    constexpr std::int32_t bound = 1 << 22;
    std::size_t wrong = 0;
    const auto check = [&](float x, float step, std::int32_t low, std::int32_t high) {
        const volatile float reciprocal = 1.0f / step;
        const volatile float steps = x * reciprocal;
        const double bounded =
            std::clamp(static_cast<double>(steps), static_cast<double>(low), static_cast<double>(high));
        if (zeropp::nearest_code(x, step, low, high) != static_cast<std::int32_t>(std::nearbyint(bounded))) ++wrong;
    };
    constexpr auto far = static_cast<float>(bound);
    for (const float x : {far, -far, far - 0.5f, -far + 0.5f, far - 1.5f, far + 1.0f, 1e38f, -1e38f}) {
        check(x, 1.0f, -bound, bound);
    }
    random_source random(3);
    for (int i = 0; i != 300'000; ++i) {
        const auto step = static_cast<float>(random.normal()) + 1e-6f;
        check(static_cast<float>(random.normal() * 1e6), step, -bound, bound);
        check(static_cast<float>(random.normal() * 10), step, -7, 7);
        check(static_cast<float>(random.normal() * 10), step, -8, 7);
        check(static_cast<float>(i) * 0.25f - 100.0f, 1.0f, 0, 255);
        if (const float x = random.any_float(); is_finite(static_cast<double>(x))) check(x, step, -8, 7);
    }
    CHECK(wrong == 0);
}

namespace {

float divided(float x, const zeropp::detail::inverse& by) {
    const volatile float low = x * by.low;  // rounded before it is added
    return std::fma(x, by.high, low);
}

}  // namespace

TEST_CASE("a quotient is a product with both parts of an inverse", "[quantizer][scale]") {
    using zeropp::detail::inverse;
    using zeropp::detail::is_tiny;
    std::size_t wrong = 0;
    // Outermost codes and numbers of ranks, for every mantissa.
    for (const float divisor : {3.0f, 7.0f, 31.0f, 127.0f}) {
        const inverse by(divisor);
        for (std::uint32_t mantissa = 0; mantissa != 1u << 23; ++mantissa) {
            const float x = float_of(0x3f800000u | mantissa);
            wrong += divided(x, by) != x / divisor ? 1u : 0u;
        }
    }
    CHECK(wrong == 0);
    // For other divisors, dividends next to the products with the middle of two floats, where rounding changes; also the
    // smallest that is not tiny and the largest, of either sign.
    random_source random(34);
    for (int i = 0; i != 200'000; ++i) {
        const auto d = static_cast<float>(1 + random.below(i % 2 == 0 ? 255 : (1u << 20) - 1));
        const inverse by(d);
        const double middle = static_cast<double>(2 * ((1u << 23) + random.below(1u << 23)) + 1);
        auto x = static_cast<float>(middle * static_cast<double>(d));
        x = float_of(zeropp::float_bits(x) + static_cast<std::uint32_t>(random.below(3)) - 1);
        const int exponent = i % 3 == 0 ? -80 : i % 3 == 1 ? 127 : 0;
        x = std::ldexp(x, exponent - std::ilogb(x)) * (i % 2 == 0 ? 1.0f : -1.0f);
        wrong += divided(x, by) != x / d ? 1u : 0u;
    }
    CHECK(wrong == 0);
    // Zero and Inf keep their signs.
    for (const float d : {1.0f, 3.0f, 4.0f, 6.0f, 1000.0f, -7.0f}) {
        const inverse by(d);
        for (const float x : {0.0f, -0.0f, std::numeric_limits<float>::infinity()}) {
            if (by.low == 0) continue;
            CHECK(zeropp::float_bits(divided(x, by)) == zeropp::float_bits(x / d));
            CHECK(zeropp::float_bits(divided(-x, by)) == zeropp::float_bits(-x / d));
        }
    }
    // Powers of two have one part, and other numbers no inverse.
    for (const float d : {1.0f, 2.0f, -128.0f, 0x1p64f}) CHECK((inverse(d).high == 1 / d && inverse(d).low == 0));
    for (const float d : {0.0f, -0.0f, 0.5f, 2.5f, 0x1p20f + 1, 0x1p65f, float_of(0x7f800000u), float_of(0x7fc00000u)})
        CHECK(inverse(d).high == 0);
    CHECK((!is_tiny(0.0f) && !is_tiny(-0.0f) && is_tiny(float_of(1)) && is_tiny(float_of(0x80000001u))));
    CHECK((is_tiny(-0x1.fffffep-81f) && !is_tiny(0x1p-80f) && !is_tiny(-0x1p-80f) && !is_tiny(largest)));
}
