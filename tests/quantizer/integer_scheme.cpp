#include <zeropp/quantizer/integer_scheme.hpp>

#include "support/catch.hpp"
#include "support/integer_models.hpp"
#include "support/samples.hpp"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace {

using namespace zeropp_test;
using zeropp::asymmetric;
using zeropp::bfloat16;
using zeropp::half;
using zeropp::signed_absmax;
using zeropp::symmetric;

constexpr float largest = std::numeric_limits<float>::max();

using block_list = std::vector<std::vector<float>>;

/// Blocks that reach every branch of the arithmetic.
block_list telling_blocks() {
    block_list blocks{{0.0f, -0.0f},
                      {-0.0f},
                      {1.0f, -1.0f},
                      {float_of(1)},
                      {float_of(0x80000003u), float_of(7)},
                      {0x1p-126f},
                      {-0x1.8p-127f},
                      {largest},
                      {-largest},
                      {largest, -largest},
                      {largest, 0.0f},
                      {-largest, 0.0f},
                      {65504.0f},
                      {65520.0f, 1.0f},
                      {-65505.0f, 65505.0f},
                      {70000.0f, 80000},
                      {8.4e6f, -1.0f},
                      {6e-8f, -2.9e-8f},
                      {1e-9f},
                      {-1e-9f, 1e-9f},
                      {0.1f, 0.1f},
                      {1000.0f, 1000.5f},
                      {-2.0f, 2.0f},
                      {2.0f, -2.0f, 1.0f},
                      {float_of(0x7f800000u)},
                      {largest, largest / 2},
                      {-largest, -largest / 2},
                      {largest / 2, -largest / 2}};
    const std::vector<float> mixed = mixed_floats(64'000, 21);
    for (std::size_t i = 0; i < mixed.size(); i += 16) {
        blocks.emplace_back(mixed.begin() + static_cast<std::ptrdiff_t>(i),
                            mixed.begin() + static_cast<std::ptrdiff_t>(i + 16));
    }
    random_source random(22);
    for (int i = 0; i != 3000; ++i) {
        std::vector<float> block;
        const float a = random.any_float();
        // Neighbouring magnitudes, so that codes other than the ends are used.
        for (int k = 0; k != 4; ++k) block.push_back(a * static_cast<float>(random.normal() * 0.5));
        blocks.push_back(block);
    }
    return blocks;
}

/// Codes, parameters and decoded values are those of the reference, to the bit.
void check_against_reference(const integer_model& m, const block_list& blocks) {
    std::size_t right_blocks = 0;
    for (const auto& block : blocks) {
        const quantized_block actual = m.quantizer.round_trip(block);
        const auto p = m.reference.fit(block.data(), block.size());
        const std::vector<std::uint8_t> message = m.reference.message(block, block.size());
        const std::vector<std::uint8_t> params(
            message.begin() + static_cast<std::ptrdiff_t>(m.reference.params_offset(block.size())),
            message.begin() +
                static_cast<std::ptrdiff_t>(m.reference.params_offset(block.size()) + actual.params.size()));
        bool right = params == actual.params;
        for (std::size_t i = 0; i != block.size() && right; ++i) {
            const std::uint32_t code = m.reference.encode(block[i], p);
            right = code == actual.codes[i] && same(m.reference.decode(code, p), actual.decoded[i]);
        }
        if (!right) {
            CAPTURE(m.quantizer.name, text_of(block), text_of(p.step), text_of(p.minimum), text_of(actual.decoded));
            FAIL_CHECK("not what the reference computes");
            return;
        }
        ++right_blocks;
    }
    CHECK(right_blocks == blocks.size());
}

}  // namespace

TEMPLATE_TEST_CASE("schemes compute what their documentation says, to the bit", "[quantizer][integer_scheme]",
                   symmetric, signed_absmax, asymmetric) {
    const block_list blocks = telling_blocks();
    for (const auto& m : integer_models<16, TestType, float>()) check_against_reference(m, blocks);
    for (const auto& m : integer_models<16, TestType, half>()) check_against_reference(m, blocks);
    for (const auto& m : integer_models<16, TestType, bfloat16>()) check_against_reference(m, blocks);
}

TEST_CASE("symmetric by hand", "[quantizer][integer_scheme]") {
    const auto q = describe<zeropp::block_integer<4, 8>>();
    const auto r = q.round_trip({7.0f, -7.0f, 0.5f, 1.5f, -2.5f, 3.49f, 0.0f, -6.51f});
    CHECK(r.codes == std::vector<std::uint32_t>{7, 9, 0, 2, 14, 3, 0, 9});
    CHECK(r.decoded == std::vector<float>{7, -7, 0, 2, -2, 3, 0, -7});
}

TEST_CASE("the positive extreme is not clipped by signed_absmax", "[quantizer][integer_scheme]") {
    const auto q = describe<zeropp::block_integer<4, 8, signed_absmax>>();
    const auto positive = q.round_trip({8.0f, -8.0f, 1.0f, -7.0f, 0.0f});
    // A tie between the signs goes to the negative one.
    CHECK(positive.decoded == std::vector<float>{7, -8, 1, -7, 0});
    const auto larger = q.round_trip({16.0f, -14.0f, 2.0f, -15.99f, 0.0f});
    CHECK(larger.decoded == std::vector<float>{16, -14, 2, -14, 0});
    CHECK(larger.codes == std::vector<std::uint32_t>{8, 7, 15, 7, 0});
}

TEST_CASE("asymmetric by hand", "[quantizer][integer_scheme]") {
    const auto q = describe<zeropp::block_integer<4, 8, asymmetric>>();
    const auto r = q.round_trip({10.0f, 25.0f, 12.5f, 13.5f, 24.4f});
    CHECK(r.codes == std::vector<std::uint32_t>{0, 15, 2, 4, 14});
    CHECK(r.decoded == std::vector<float>{10, 25, 12, 14, 24});
}

TEST_CASE("constant blocks are exact with a float minimum", "[quantizer][integer_scheme]") {
    const auto q = describe<zeropp::block_integer<2, 8, asymmetric>>();
    for (const float x : {0.1f, -123.456f, largest, -largest, float_of(1), float_of(0x80000001u), 1e-38f}) {
        const auto r = q.round_trip({x, x, x});
        CHECK(r.decoded == std::vector<float>{x, x, x});
        CHECK(r.codes == std::vector<std::uint32_t>{0, 0, 0});
    }
}

TEST_CASE("a scale beyond half gives NaN and not infinity or a wrong number", "[quantizer][integer_scheme]") {
    const auto nan = [](const quantizer_model& q, const std::vector<float>& block) {
        const auto decoded = q.round_trip(block).decoded;
        return std::all_of(decoded.begin(), decoded.end(), is_nan);
    };
    const auto int8 = describe<zeropp::block_integer<8, 8, symmetric, half>>();
    CHECK_FALSE(nan(int8, {65504.0f * 127.0f, 1.0f}));
    CHECK(nan(int8, {65505.0f * 127.0f, 1.0f}));
    const auto int4 = describe<zeropp::block_integer<4, 8, signed_absmax, half>>();
    CHECK_FALSE(nan(int4, {65504.0f * 8.0f, 1.0f}));
    CHECK(nan(int4, {1.0f, -65505.0f * 8.0f}));
    const auto shifted = describe<zeropp::block_integer<4, 8, asymmetric, half>>();
    CHECK_FALSE(nan(shifted, {-65504.0f, 1.0f}));
    CHECK(nan(shifted, {-65505.0f, 1.0f}));
    CHECK_FALSE(nan(shifted, {100000.0f, 200000.0f}));
    CHECK(nan(shifted, {0.0f, 65505.0f * 15.0f}));
}

TEST_CASE("a range beyond float gives NaN", "[quantizer][integer_scheme]") {
    const auto q = describe<zeropp::block_integer<8, 8, asymmetric>>();
    CHECK(is_nan(q.round_trip({largest, -largest}).decoded[0]));
    CHECK(is_nan(q.round_trip({largest, -1e37f}).decoded[1]));
    const auto half_range = q.round_trip({largest / 2, -largest / 2}).decoded;
    CHECK(half_range[1] == -largest / 2);
    CHECK(half_range[0] > 0.499f * largest);
    CHECK(is_finite(static_cast<double>(half_range[0])));
}
