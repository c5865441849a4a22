#include <zeropp/quantizer/block_integer.hpp>

#include "support/catch.hpp"
#include "support/integer_models.hpp"

#include <cmath>
#include <cstddef>
#include <vector>

namespace {

using namespace zeropp_test;
using zeropp::asymmetric;
using zeropp::bfloat16;
using zeropp::half;
using zeropp::signed_absmax;
using zeropp::symmetric;

template <class Scheme>
std::vector<integer_model> every_scale_and_width() {
    std::vector<integer_model> all = integer_models<16, Scheme, float>();
    for (const auto& more : {integer_models<16, Scheme, half>(), integer_models<16, Scheme, bfloat16>()}) {
        all.insert(all.end(), more.begin(), more.end());
    }
    return all;
}

template <class Scheme>
std::vector<integer_model> every_block_size() {
    return {describe_integer<8, 8, Scheme, float>(),      describe_integer<4, 8, Scheme, half>(),
            describe_integer<6, 128, Scheme, bfloat16>(), describe_integer<4, 128, Scheme, half>(),
            describe_integer<8, 256, Scheme, float>(),    describe_integer<5, 256, Scheme, half>(),
            describe_integer<8, 2048, Scheme, float>(),   describe_integer<3, 65536, Scheme, half>()};
}

/// The stated bound is no more than it claims: the block's step, computed in double, times what the scheme is off.
void check_bounds_are_tight(const integer_model& m) {
    CAPTURE(m.quantizer.name);
    const reference_format& f = m.reference;
    for (const double scale : {1e-2, 1.0, 50.0}) {
        for (const std::size_t n : {std::size_t{2}, std::size_t{9}, f.block_size}) {
            const std::vector<float> block = normal_floats(n, n + 1, scale);
            double low = 0;
            double high = 0;
            double least = static_cast<double>(block[0]);
            double most = least;
            for (const float x : block) {
                low = std::min(low, static_cast<double>(x));
                high = std::max(high, static_cast<double>(x));
                least = std::min(least, static_cast<double>(x));
                most = std::max(most, static_cast<double>(x));
            }
            // Rounding the scale up costs at most one unit in the last place, and rounding the minimum down as much.
            const double unit = std::ldexp(1.0, -f.stored.mantissa_bits);
            double range = std::max(-low, high);
            if (f.how == scheme::asymmetric) range = most - least + unit * std::fabs(least) + 0x1p-24;
            const double step = range / f.furthest() * (1.0 + unit) + 0x1p-24;
            const double off = f.how == scheme::signed_absmax ? 1.0 : 0.5;
            const quantized_block result = m.quantizer.round_trip(block);
            for (std::size_t i = 0; i != n; ++i) {
                const double most_allowed =
                    step * off * (1.0 + 0x1p-11) + std::fabs(static_cast<double>(block[i])) * 0x1p-21;
                if (!(static_cast<double>(result.bounds[i]) <= most_allowed)) {
                    CAPTURE(n, scale, i, block[i], result.bounds[i], most_allowed);
                    FAIL_CHECK("the stated bound is wider than the step allows");
                    return;
                }
            }
        }
    }
}

}  // namespace

TEMPLATE_TEST_CASE("integer quantizers of every width and scale keep the laws", "[quantizer][block_integer]", symmetric,
                   signed_absmax, asymmetric) {
    for (const auto& m : every_scale_and_width<TestType>()) check_quantizer_laws(m.quantizer);
}

TEMPLATE_TEST_CASE("integer quantizers of every block size keep the laws", "[quantizer][block_integer]", symmetric,
                   signed_absmax, asymmetric) {
    for (const auto& m : every_block_size<TestType>()) {
        check_stats_laws(m.quantizer, 4);
        check_zeros(m.quantizer);
        if (m.quantizer.block_size <= 2048) {
            check_not_finite(m.quantizer);
            check_blocks(m.quantizer);
        } else {
            check_block(m.quantizer, normal_floats(m.quantizer.block_size, 1));
        }
    }
}

TEMPLATE_TEST_CASE("stated bounds are within half a step, or one", "[quantizer][block_integer]", symmetric,
                   signed_absmax, asymmetric) {
    for (const auto& m : every_scale_and_width<TestType>()) check_bounds_are_tight(m);
    for (const auto& m : every_block_size<TestType>()) check_bounds_are_tight(m);
}

TEST_CASE("names of integer quantizers", "[quantizer][block_integer]") {
    CHECK(zeropp::block_integer<4, 65536, signed_absmax>::name().str() == "int4:65536:signed");
    CHECK(zeropp::block_integer<2, 8, asymmetric, bfloat16>::name().str() == "int2:8:asymmetric:bf16");
}
