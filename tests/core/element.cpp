#include <zeropp/core/element.hpp>

#include "support/catch.hpp"
#include "support/floating_format.hpp"
#include "support/samples.hpp"

#include <cmath>
#include <cstdint>

namespace {

using namespace zeropp_test;
using zeropp::bfloat16;
using zeropp::element_traits;
using zeropp::half;

/// Counts values that a conversion gets wrong, and remembers the first.
struct tally {
    std::size_t wrong = 0;
    std::uint32_t first = 0;
    void expect(bool right, std::uint32_t input) {
        if (!right && wrong++ == 0) first = input;
    }
};

template <class T>
struct sixteen_bit;

template <>
struct sixteen_bit<half> {
    static constexpr floating_format format = fp16_format;
    static constexpr std::uint32_t nan = 0x7e00;
};
template <>
struct sixteen_bit<bfloat16> {
    static constexpr floating_format format = bf16_format;
    static constexpr std::uint32_t nan = 0x7fc0;
};

/// The encoding that a float must become: a NaN becomes one quiet NaN, with its sign.
template <class T>
std::uint32_t expected_bits(float x) {
    if (is_nan(x)) return sixteen_bit<T>::nan | (bits_of(x) >> 31 << 15);
    return sixteen_bit<T>::format.nearest(static_cast<double>(x));
}

template <class T>
void check_from_float(tally& t, float x) {
    t.expect(T(x).bits == expected_bits<T>(x), bits_of(x));
}

}  // namespace

// Types of a user's own: one that is an element, and some that each lack something.
namespace element_test {

struct fractional {
    std::int16_t quarters;
};
struct unnamed_number {
    float x;
};
struct may_throw {
    float x;
};
struct not_trivial {
    not_trivial(const not_trivial& other) : x(other.x) {}
    float x;
};

}  // namespace element_test

template <>
struct zeropp::element_traits<element_test::fractional> {
    static constexpr std::string_view name = "quarters";
    static constexpr float to_float(element_test::fractional x) noexcept {
        return static_cast<float>(x.quarters) / 4.0f;
    }
    static constexpr element_test::fractional from_float(float x) noexcept {
        return {static_cast<std::int16_t>(x * 4.0f)};
    }
};

template <>
struct zeropp::element_traits<element_test::may_throw> {
    static constexpr std::string_view name = "may_throw";
    static float to_float(element_test::may_throw x) { return x.x; }
    static element_test::may_throw from_float(float x) { return {x}; }
};
template <>
struct zeropp::element_traits<element_test::not_trivial> {
    static constexpr std::string_view name = "not_trivial";
    static float to_float(const element_test::not_trivial& x) noexcept { return x.x; }
    static element_test::not_trivial from_float(float) noexcept;
};

TEMPLATE_TEST_CASE("every 16-bit pattern becomes the float it stands for", "[core][element]", half, bfloat16) {
    tally t;
    for (std::uint32_t bits = 0; bits != 0x10000u; ++bits) {
        const float x = static_cast<float>(TestType::from_bits(static_cast<std::uint16_t>(bits)));
        const float expected = static_cast<float>(sixteen_bit<TestType>::format.value(bits));
        t.expect(same(x, expected), bits);
        // The sign of a NaN survives too.
        t.expect(std::signbit(x) == ((bits & 0x8000u) != 0), bits);
    }
    CAPTURE(t.first);
    CHECK(t.wrong == 0);
}

TEMPLATE_TEST_CASE("every 16-bit pattern survives the way over float", "[core][element]", half, bfloat16) {
    tally t;
    for (std::uint32_t bits = 0; bits != 0x10000u; ++bits) {
        const auto narrow = TestType::from_bits(static_cast<std::uint16_t>(bits));
        const bool nan = (bits & 0x7fffu) > sixteen_bit<TestType>::format.infinity();
        const std::uint32_t expected = nan ? sixteen_bit<TestType>::nan | (bits & 0x8000u) : bits;
        t.expect(TestType(static_cast<float>(narrow)).bits == expected, bits);
    }
    CAPTURE(t.first);
    CHECK(t.wrong == 0);
}

TEMPLATE_TEST_CASE("floats round to the nearest 16-bit value, ties to even", "[core][element]", half, bfloat16) {
    const floating_format format = sixteen_bit<TestType>::format;
    tally t;
    // Around every value and around every midpoint between neighbours, of both signs.
    for (std::uint32_t bits = 0; bits != format.infinity(); ++bits) {
        const double low = format.value(bits);
        const double high =
            bits + 1 == format.infinity() ? std::ldexp(1.0, 1 << (format.exponent_bits - 1)) : format.value(bits + 1);
        for (const double middle : {low, (low + high) / 2, low + (high - low) / 4}) {
            const float x = static_cast<float>(middle);
            for (const float y : {x, std::nextafterf(x, 0.0f), std::nextafterf(x, 2.0f * x + 1.0f)}) {
                check_from_float<TestType>(t, y);
                check_from_float<TestType>(t, -y);
            }
        }
    }
    random_source random(1);
    for (int i = 0; i != 1'000'000; ++i) check_from_float<TestType>(t, random.any_float());
    for (std::uint32_t bits = 0; bits != 0x10000u; ++bits) check_from_float<TestType>(t, float_of(bits * 0x10001u));
    CAPTURE(t.first);
    CHECK(t.wrong == 0);
}

TEST_CASE("where half ends", "[core][element]") {
    CHECK(half(65504.0f).bits == 0x7bff);
    CHECK(half(65519.996f).bits == 0x7bff);
    CHECK(half(65520.0f).bits == 0x7c00);
    CHECK(half(-65520.0f).bits == 0xfc00);
    CHECK(half(0x1p-24f).bits == 0x0001);
    CHECK(half(0x1p-25f).bits == 0x0000);
    CHECK(half(-0x1p-25f).bits == 0x8000);
    CHECK(half(0x1.000002p-25f).bits == 0x0001);
    CHECK(half(0x1.ffep-15f).bits == 0x0400);
    CHECK(half(0x1.ff8p-15f).bits == 0x03ff);
    CHECK(half(float_of(1)).bits == 0x0000);
    CHECK(half(float_of(0x7f800000u)).bits == 0x7c00);
    CHECK(half(float_of(0x7f800001u)).bits == 0x7e00);
    CHECK(half(float_of(0xffffffffu)).bits == 0xfe00);
}

TEST_CASE("where bfloat16 ends", "[core][element]") {
    CHECK(bfloat16(0x1.fep127f).bits == 0x7f7f);
    CHECK(bfloat16(0x1.fefffep127f).bits == 0x7f7f);
    CHECK(bfloat16(0x1.ffp127f).bits == 0x7f80);
    CHECK(bfloat16(-0x1.fffffep127f).bits == 0xff80);
    CHECK(bfloat16(float_of(0x00008000u)).bits == 0x0000);
    CHECK(bfloat16(float_of(0x00008001u)).bits == 0x0001);
    CHECK(bfloat16(float_of(0x00018000u)).bits == 0x0002);
    CHECK(bfloat16(float_of(0x7f800001u)).bits == 0x7fc0);
    CHECK(bfloat16(float_of(0xff800001u)).bits == 0xffc0);
}

TEST_CASE("conversions are constant expressions", "[core][element]") {
    static_assert(half(1.5f).bits == 0x3e00);
    static_assert(static_cast<float>(half::from_bits(0x0001)) == 0x1p-24f);
    static_assert(bfloat16(1.5f).bits == 0x3fc0);
    static_assert(static_cast<float>(bfloat16::from_bits(0xbfc0)) == -1.5f);
    static_assert(sizeof(half) == 2 && sizeof(bfloat16) == 2);
    static_assert(std::is_trivial_v<half> && std::is_trivial_v<bfloat16>);
    SUCCEED();
}

TEST_CASE("element traits name and convert", "[core][element]") {
    CHECK(element_traits<float>::name == "fp32");
    CHECK(element_traits<half>::name == "fp16");
    CHECK(element_traits<bfloat16>::name == "bf16");
    CHECK(element_traits<half>::to_float(half(0.25f)) == 0.25f);
    CHECK(element_traits<bfloat16>::from_float(0.25f).bits == 0x3e80);
    CHECK(element_traits<float>::from_float(0.1f) == 0.1f);
}

TEST_CASE("what an element is", "[core][element]") {
    static_assert(zeropp::element<float> && zeropp::element<half> && zeropp::element<bfloat16>);
    static_assert(zeropp::element<element_test::fractional>);
    static_assert(!zeropp::element<double> && !zeropp::element<int> && !zeropp::element<const float*>);
    static_assert(!zeropp::element<element_test::unnamed_number>);
    static_assert(!zeropp::element<element_test::may_throw>);
    static_assert(!zeropp::element<element_test::not_trivial>);
    SUCCEED();
}
