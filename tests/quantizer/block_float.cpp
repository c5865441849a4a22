#include <zeropp/quantizer/block_float.hpp>
#include <zeropp/quantizer/hadamard.hpp>

#include "conformance/quantizer_laws.hpp"
#include "support/catch.hpp"
#include "support/floating_format.hpp"
#include "support/integer_models.hpp"
#include "support/samples.hpp"
#include "support/small_float_format.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

namespace {

using namespace zeropp_test;
using zeropp::bfloat16;
using zeropp::block_float;
using zeropp::e2m1;
using zeropp::e2m3;
using zeropp::e3m2;
using zeropp::e4m3;
using zeropp::e5m2;
using zeropp::half;

constexpr float largest = std::numeric_limits<float>::max();

float absmax_of(const std::vector<float>& values) {
    float most = 0.0f;
    for (const float x : values) most = is_finite(static_cast<double>(x)) ? std::max(most, std::fabs(x)) : most;
    return most;
}

/// The scale that `fit` must choose for a block, from its absmax.
using scale_rule = std::function<double(const small_float_format& format, float absmax)>;

/// A format of blocks: what is under test, what it should be, and the rule of its scales.
struct float_model {
    quantizer_model quantizer;
    const small_float_format& format;
    scale_rule scale;
};

/// The block's absmax over the largest value, rounded up to what is stored and not below 2^-126.
template <class Scale>
double fitted_scale(const small_float_format& format, float absmax) {
    const floating_format stored = format_of<Scale>;
    const float top = static_cast<float>(format.largest());
    if (absmax == 0.0f) return 0.0;
    const float ideal = std::max(float_quotient(absmax, top), 0x1p-126f);
    const std::uint32_t code = stored.ceil(static_cast<double>(ideal));
    const double up = stored.value(code);
    if (is_finite(static_cast<double>(static_cast<float>(up * format.largest())))) return up;
    return stored.bytes() == 4 ? stored.value(code - 1) : std::numeric_limits<double>::quiet_NaN();
}

/// MX 1.0, section 6.3: the largest power of two in the block, over that of the format.
double microscaling_scale(const small_float_format& format, float absmax) {
    if (absmax == 0.0f) return 0x1p-127;
    return std::ldexp(1.0, std::max(std::ilogb(absmax) - std::ilogb(format.largest()), -127));
}

template <class Format, int BlockSize, class Scale>
float_model describe_float() {
    using quantizer = block_float<Format, BlockSize, Scale>;
    const bool microscaling = std::is_same_v<Scale, zeropp::e8m0>;
    scale_rule rule = microscaling_scale;
    if constexpr (!microscaling) rule = fitted_scale<Scale>;
    return {describe<quantizer>(), small_format_of<Format>(), rule};
}

std::vector<float_model> microscaling_models() {
    return {describe_float<e4m3, 32, zeropp::e8m0>(), describe_float<e5m2, 32, zeropp::e8m0>(),
            describe_float<e2m3, 32, zeropp::e8m0>(), describe_float<e3m2, 32, zeropp::e8m0>(),
            describe_float<e2m1, 32, zeropp::e8m0>()};
}

std::vector<float_model> fitted_models() {
    return {describe_float<e4m3, 128, float>(), describe_float<e5m2, 128, half>(), describe_float<e4m3, 8, bfloat16>(),
            describe_float<e5m2, 64, float>(),  describe_float<e2m1, 16, half>(),  describe_float<e3m2, 32, float>()};
}

std::vector<float_model> all_models() {
    std::vector<float_model> all = microscaling_models();
    for (auto& m : fitted_models()) all.push_back(m);
    return all;
}

/// Blocks that reach every branch of the arithmetic.
std::vector<std::vector<float>> telling_blocks() {
    std::vector<std::vector<float>> blocks{{0.0f, -0.0f},
                                           {1.0f, -1.0f},
                                           {float_of(1)},
                                           {float_of(0x80000003u), float_of(7)},
                                           {0x1p-126f, -0x1p-130f},
                                           {0x1p-118f, 0x1p-119f, 0x1.8p-127f, 0x1p-127f},
                                           {largest, -largest, largest / 3, 1.0f},
                                           {-largest},
                                           {65504.0f * 448.0f, 1.0f},
                                           {7.999f, 6.0f, 5.0f, 2.5f, -3.5f, 0.25f, 0.75f, 1.25f},
                                           {0x1p-20f, 0x1p-21f}};
    random_source random(71);
    for (int i = 0; i != 3000; ++i) {
        std::vector<float> block;
        const double level =
            i % 3 == 0 ? static_cast<double>(std::fabs(random.any_float())) : std::ldexp(1.0, i % 60 - 30);
        if (!is_finite(level)) continue;
        // One-hot blocks, and such with elements of very different sizes, among the ordinary ones.
        for (int k = 0; k != 8; ++k) {
            const double spread = i % 5 == 0 ? std::ldexp(1.0, -static_cast<int>(random.below(30))) : 1.0;
            const double x = i % 7 == 0 && k != 3 ? 0.0 : random.normal() * 0.2 * spread * level;
            block.push_back(static_cast<float>(x));
        }
        if (is_finite(static_cast<double>(absmax_of(block)))) blocks.push_back(block);
    }
    return blocks;
}

/// Codes and values of a block are those of the definition, to the bit.
bool is_by_definition(const float_model& m, const std::vector<float>& block) {
    const quantized_block actual = m.quantizer.round_trip(block);
    const double scale = m.scale(m.format, absmax_of(block));
    if (std::isnan(scale)) return std::all_of(actual.decoded.begin(), actual.decoded.end(), is_nan);
    const double reciprocal = scale == 0.0 ? 0.0 : static_cast<double>(static_cast<float>(1.0 / scale));
    for (std::size_t i = 0; i != block.size(); ++i) {
        const float units = static_cast<float>(static_cast<double>(block[i]) * reciprocal);
        const std::uint32_t code = m.format.nearest(static_cast<double>(units));
        const float value = float_product(static_cast<float>(m.format.value(code)), static_cast<float>(scale));
        const bool bounded = std::fabs(static_cast<double>(value) - static_cast<double>(block[i])) <=
                             static_cast<double>(actual.bounds[i]);
        if (code != actual.codes[i] || !same(value, actual.decoded[i]) || !bounded) return false;
    }
    return true;
}

}  // namespace

TEST_CASE("blocks of floats keep the laws", "[quantizer][block_float]") {
    for (const auto& m : all_models()) check_quantizer_laws(m.quantizer);
}

TEST_CASE("blocks of floats are what their definition says, to the bit", "[quantizer][block_float]") {
    const auto blocks = telling_blocks();
    for (const auto& m : all_models()) {
        for (const auto& block : blocks) {
            if (is_by_definition(m, block)) continue;
            CAPTURE(m.quantizer.name, text_of(block));
            FAIL_CHECK("not what the definition gives");
            return;
        }
    }
}

TEST_CASE("blocks that float scales can hold are finite to the largest float", "[quantizer][block_float]") {
    for (const auto& m : all_models()) {
        const bool narrow = m.quantizer.name.ends_with("fp16") || m.quantizer.name.ends_with("bf16");
        if (narrow) continue;
        CAPTURE(m.quantizer.name);
        std::size_t wrong = 0;
        for (std::uint32_t below = 0; below != 3000; ++below) {
            const float x = float_of(bits_of(largest) - below);
            for (const float decoded : m.quantizer.round_trip({x, -x, x / 2}).decoded) {
                if (!is_finite(static_cast<double>(decoded))) ++wrong;
            }
        }
        CHECK(wrong == 0);
    }
}

TEST_CASE("a block that is not finite has one message, whatever its NaN", "[quantizer][block_float]") {
    for (const auto& m : all_models()) {
        CAPTURE(m.quantizer.name);
        const auto expected = m.quantizer.round_trip({float_of(0x7f800000u), 1.0f, -1.0f, 0.0f});
        CHECK(expected.codes == std::vector<std::uint32_t>(4, 0u));
        for (const std::uint32_t bits : {0xff800000u, 0x7fc00000u, 0xffc00000u, 0xffffffffu, 0x7f800001u}) {
            const auto actual = m.quantizer.round_trip({float_of(bits), 1.0f, -1.0f, 0.0f});
            CHECK(actual.codes == expected.codes);
            CHECK(actual.params == expected.params);
        }
    }
}

TEST_CASE("what blocks of floats are off is what they say, and hardly less", "[quantizer][block_float]") {
    for (const auto& m : all_models()) {
        CAPTURE(m.quantizer.name);
        double closest = 0;
        double widest = 0;
        random_source random(72);
        for (int round = 0; round != 4000; ++round) {
            std::vector<float> block = normal_floats(8, random.next());
            const float absmax = absmax_of(block);
            const auto result = m.quantizer.round_trip(block);
            for (std::size_t i = 0; i != block.size(); ++i) {
                const double error = std::fabs(static_cast<double>(result.decoded[i]) - static_cast<double>(block[i]));
                closest = std::max(closest, error / static_cast<double>(result.bounds[i]));
                widest = std::max(widest, static_cast<double>(result.bounds[i] / absmax));
            }
        }
        // Half a unit of the largest binade over the largest value, or what a power of two clips.
        const double half_unit = std::ldexp(0.5, std::ilogb(m.format.largest()) - m.format.mantissa_bits);
        const double clipped = 1.0 - m.format.largest() / std::ldexp(2.0, std::ilogb(m.format.largest()));
        const bool microscaling = m.quantizer.name.starts_with("mx");
        const double most =
            microscaling ? std::max(clipped, std::ldexp(0.5, -m.format.mantissa_bits)) : half_unit / m.format.largest();
        CHECK(closest > 0.99);
        CHECK(closest <= 1.0);
        CHECK(widest <= most * 1.01);
    }
}

TEMPLATE_TEST_CASE("blocks of floats hold no more than their extent, which bounds them rotated",
                   "[quantizer][block_float]", zeropp::mxfp4, zeropp::mxfp8<e5m2>, (block_float<e4m3, 128, half>),
                   (block_float<e3m2, 32>)) {
    STATIC_REQUIRE(zeropp::bounded_quantizer<zeropp::hadamard<TestType>>);
    random_source random(74);
    for (int i = 0; i != 2000; ++i) {
        const auto x = static_cast<float>(random.normal() * std::ldexp(1.0, static_cast<int>(random.below(20)) - 10));
        typename TestType::stats stats;
        stats.add(x);
        const float extent = TestType{}.extent(TestType{}.fit(stats));
        const float next = std::nextafter(extent, std::numeric_limits<float>::infinity());
        CHECK(next >= std::fabs(x));
        CHECK(extent <= 2.0f * std::fabs(x) + 0x1p-10f);
    }
}

TEST_CASE("MX by hand", "[quantizer][block_float]") {
    const auto mxfp4 = describe<zeropp::mxfp4>();
    const auto r = mxfp4.round_trip({7.9f, -6.0f, 5.0f, 3.5f, 2.5f, 1.75f, -0.75f, 0.25f, 0.2f});
    CHECK(r.params == std::vector<std::uint8_t>{127});
    CHECK(r.decoded == std::vector<float>{6, -6, 4, 4, 2, 2, -1, 0, 0});
    CHECK(mxfp4.round_trip({8.0f, 1.0f}).params == std::vector<std::uint8_t>{128});
    CHECK(mxfp4.round_trip({0.0f}).params == std::vector<std::uint8_t>{0});
    CHECK(mxfp4.round_trip({float_of(0x7fc00000u)}).params == std::vector<std::uint8_t>{255});
    const auto mxfp8 = describe<zeropp::mxfp8<e4m3>>();
    CHECK(mxfp8.round_trip({500.0f, 256.0f, 17.0f}).decoded == std::vector<float>{448, 256, 16});
    CHECK(mxfp8.round_trip({500.0f}).params == std::vector<std::uint8_t>{127});
}

TEST_CASE("blocks of floats take few bytes of parameters", "[quantizer][block_float]") {
    STATIC_REQUIRE(sizeof(block_float<e4m3, 128>::params) == 4);
    STATIC_REQUIRE(sizeof(block_float<e5m2, 128, half>::params) == 2);
    STATIC_REQUIRE(sizeof(zeropp::mxfp4::params) == 1);
}

TEST_CASE("names of blocks of floats", "[quantizer][block_float]") {
    CHECK(block_float<e5m2, 128, half>::name().str() == "fp8_e5m2:128:fp16");
    CHECK(block_float<e2m1, 16, bfloat16>::name().str() == "fp4_e2m1:16:bf16");
    CHECK(block_float<e2m1, 64, zeropp::e8m0>::name().str() == "mxfp4:64");
}
