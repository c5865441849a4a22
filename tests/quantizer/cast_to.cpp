#include <zeropp/quantizer/cast_to.hpp>

#include "conformance/quantizer_laws.hpp"
#include "support/catch.hpp"
#include "support/integer_models.hpp"
#include "support/toy_quantizer.hpp"

#include <cmath>
#include <cstdint>

namespace {

using namespace zeropp_test;
using zeropp::bfloat16;
using zeropp::cast_to;
using zeropp::half;

static_assert(zeropp::bounded_quantizer<cast_to<float>> && zeropp::quantizer<cast_to<toy_element>>);

}  // namespace

TEMPLATE_TEST_CASE("cast_to keeps the laws", "[quantizer][cast_to]", float, half, bfloat16) {
    const auto q = describe<cast_to<TestType>>(true);
    CHECK(cast_to<TestType>::code_bits == format_of<TestType>.bytes() * 8);
    check_stats_laws(q, 6);
    check_zeros(q);
    check_not_finite(q);
    // No overflow here: half and bfloat16 have their own infinity for what they cannot hold.
    for (const double scale : {1e-40, 1e-6, 1.0, 1e4}) check_block(q, normal_floats(64, 13, scale));
}

TEST_CASE("cast_to floats are exact to the bit, NaN payloads included", "[quantizer][cast_to]") {
    const cast_to<float> q;
    random_source random(8);
    std::size_t wrong = 0;
    for (int i = 0; i != 100'000; ++i) {
        const std::uint32_t bits = bits_of(random.any_float());
        if (q.encode(float_of(bits), {}) != bits || bits_of(q.decode(bits, {})) != bits) ++wrong;
    }
    CHECK(wrong == 0);
}

TEMPLATE_TEST_CASE("cast_to rounds wider elements once", "[quantizer][cast_to]", half, bfloat16) {
    const cast_to<TestType> q;
    const floating_format format = format_of<TestType>;
    random_source random(9);
    std::size_t wrong = 0;
    for (int i = 0; i != 100'000; ++i) {
        const float x = random.any_float();
        if (is_nan(x)) continue;
        const std::uint32_t code = format.nearest(static_cast<double>(x));
        const float value = static_cast<float>(format.value(code));
        if (q.encode(x, {}) != code || !same(q.decode(code, {}), value)) ++wrong;
        const float bound = q.error_bound(x, {});
        const double error = std::fabs(static_cast<double>(value) - static_cast<double>(x));
        if (is_finite(error) && static_cast<double>(bound) != static_cast<double>(static_cast<float>(error))) ++wrong;
    }
    CHECK(wrong == 0);
}

TEST_CASE("cast_to carries a user's own elements", "[quantizer][cast_to]") {
    const cast_to<toy_element> q;
    CHECK(q.code_bits == 16);
    CHECK(q.name().str() == "toy");
    CHECK(q.encode(1.5f, {}) == 384);
    CHECK(q.encode(-1.0f / 256, {}) == 0xffff);
    CHECK(q.decode(0xffff, {}) == -1.0f / 256);
    CHECK(is_nan(q.decode(q.encode(float_of(0x7fc00000u), {}), {})));
}
