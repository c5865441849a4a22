#include <zeropp/quantizer/scale_search.hpp>

#include <zeropp/codec/host/write.hpp>
#include <zeropp/quantizer/block_integer.hpp>

#include "support/catch.hpp"
#include "support/integer_models.hpp"
#include "support/reference.hpp"
#include "support/samples.hpp"
#include "support/toy_abilities.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace {

using namespace zeropp_test;
using zeropp::asymmetric;
using zeropp::bfloat16;
using zeropp::block_integer;
using zeropp::half;
using zeropp::scale_search;
using zeropp::signed_absmax;
using zeropp::symmetric;

using q4 = scale_search<block_integer<4, 128>>;
static_assert(zeropp::searching_quantizer<q4> && zeropp::bounded_quantizer<q4> && q4::candidates == 16);
static_assert(q4::block_size == 128 && q4::code_bits == 4);
static_assert(!zeropp::searching_quantizer<block_integer<4, 128>>);

/// What the host's codec makes of one block.
template <class Q>
struct found {
    typename Q::params params;
    std::vector<float> decoded;
};
template <class Q>
found<Q> search(const std::vector<float>& block) {
    const Q q;
    found<Q> result;
    zeropp::detail::fit_blocks(q, block.data(), block.size(), &result.params);
    zeropp::detail::refit_blocks(q, block.data(), block.size(), &result.params);
    for (const float x : block) result.decoded.push_back(q.decode(q.encode(x, result.params), result.params));
    return result;
}

double squared_error(const std::vector<float>& block, const std::vector<float>& decoded) {
    double sum = 0;
    for (std::size_t i = 0; i != block.size(); ++i) {
        const double e = static_cast<double>(block[i]) - static_cast<double>(decoded[i]);
        sum += e * e;
    }
    return sum;
}

/// The parameters of each range that may be tried, by the documentation: narrower by 2 % each, about zero or, where the
/// range has a minimum, about its middle; stored as the nearest.
std::vector<reference_format::parameters> ranges(const reference_format& f, const std::vector<float>& block, int n) {
    const auto stored = [&](float x) {
        return static_cast<float>(f.stored.value(f.stored.nearest(static_cast<double>(x))));
    };
    const reference_format::parameters fitted = f.fit(block.data(), block.size());
    std::vector<reference_format::parameters> all{fitted};
    for (int k = 1; k != n; ++k) {
        const float factor = float_sum(1.0f, -float_product(0.02f, static_cast<float>(k)));
        reference_format::parameters p{stored(float_product(fitted.step, factor)), 0.0f};
        if (f.how == scheme::asymmetric) {
            const float half_cut = float_product(float_sum(1.0f, -factor), 0.5f);
            const float steps = float_product(half_cut, static_cast<float>(f.furthest()));
            p.minimum = stored(float_sum(fitted.minimum, float_product(fitted.step, steps)));
        }
        all.push_back(p);
    }
    return all;
}

/// Blocks with something to gain and blocks with nothing: ordinary, heavy-tailed, flat with and without one outlier of
/// every size, shifted, tiny, huge.
std::vector<std::vector<float>> telling_blocks(std::size_t n, bool shifted) {
    std::vector<std::vector<float>> blocks;
    random_source random(31);
    for (const std::size_t size : {n, n, n, n - 1, n / 2 + 1, std::size_t{1}}) {
        std::vector<float> normal(size);
        std::vector<float> tailed(size);
        for (std::size_t i = 0; i != size; ++i) {
            normal[i] = static_cast<float>(random.normal());
            tailed[i] = static_cast<float>(random.student_t3());
        }
        blocks.push_back(normal);
        blocks.push_back(tailed);
    }
    for (const double outlier : {0.0, 1.05, 1.2, 1.5, 2.0, 4.0, 16.0, 100.0, -1.5, -16.0}) {
        std::vector<float> flat(n);
        for (float& x : flat) x = static_cast<float>(2.0 * random.uniform() - 1.0);
        if (outlier != 0.0) flat[n / 3] = static_cast<float>(outlier);
        blocks.push_back(flat);
    }
    // Everything half-way between two codes of the fitted range, where narrower ones gain most.
    std::vector<float> half_way(n);
    for (std::size_t i = 0; i != n; ++i) half_way[i] = static_cast<float>(static_cast<int>(i % 5) - 2) + 0.5f;
    half_way[1] = 127.0f;
    blocks.push_back(half_way);
    for (const float scale : {1e-30f, 1e3f, 1e-20f}) {
        std::vector<float> scaled = normal_floats(n, 77);
        for (float& x : scaled) x *= scale;
        blocks.push_back(scaled);
    }
    if (shifted) {
        std::vector<float> far = normal_floats(n, 78, 0.1);
        for (float& x : far) x += 3.0f;
        blocks.push_back(far);
    }
    return blocks;
}

/// The search finds the least squared error of all ranges, computed one by one in double, within what it can resolve:
/// less than one unit for each element, a unit being (step / resolution)^2.
template <int Bits, int BlockSize, class Scheme, class Scale, int Candidates = 16>
void check_search(double resolution) {
    using Q = scale_search<block_integer<Bits, BlockSize, Scheme, Scale>, Candidates>;
    const reference_format f{scheme_named<Scheme>, Bits, BlockSize, format_of<Scale>};
    CAPTURE(Q{}.name().str());
    int narrower = 0;
    std::size_t number = 0;
    for (const auto& block : telling_blocks(BlockSize, f.how == scheme::asymmetric)) {
        CAPTURE(number++);
        double least = std::numeric_limits<double>::infinity();
        double of_fitted = 0;
        std::vector<std::vector<float>> tried;
        for (const auto& p : ranges(f, block, Candidates)) {
            std::vector<float> decoded;
            for (const float x : block) decoded.push_back(f.decode(f.encode(x, p), p));
            const double error = squared_error(block, decoded);
            if (tried.empty()) of_fitted = error;
            least = std::min(least, error);
            tried.push_back(decoded);
        }
        const found<Q> best = search<Q>(block);
        const double step = static_cast<double>(f.fit(block.data(), block.size()).step);
        const double unit = step / resolution * (step / resolution);
        const double slack = static_cast<double>(block.size()) * unit + 1e-5 * of_fitted;
        const double error = squared_error(block, best.decoded);
        const bool is_one_of_them = std::find(tried.begin(), tried.end(), best.decoded) != tried.end();
        CHECK(is_one_of_them);
        CHECK(error <= least + slack);
        CHECK(error <= of_fitted + slack);
        if (error < 0.999 * of_fitted) ++narrower;
        std::size_t beyond = 0;
        for (std::size_t i = 0; i != block.size(); ++i) {
            const double off = std::fabs(static_cast<double>(best.decoded[i]) - static_cast<double>(block[i]));
            if (!(off <= static_cast<double>(Q{}.error_bound(block[i], best.params)))) ++beyond;
        }
        CHECK(beyond == 0);
    }
    CHECK(narrower >= 1);
}

/// Every error is at most its share of 2^31, whatever the element and the block.
template <class Q>
void check_errors_add_up() {
    const Q q;
    random_source random(5);
    constexpr std::uint32_t most = 0x80000000u / static_cast<std::uint32_t>(Q::block_size);
    std::size_t wrong = 0;
    for (int i = 0; i != 2000; ++i) {
        typename Q::stats stats;
        const float a = i % 2 == 0 ? random.any_float() : static_cast<float>(random.normal());
        const float b = i % 3 == 0 ? random.any_float() : static_cast<float>(random.normal());
        stats.add(a);
        const auto fitted = q.fit(stats);
        for (const int k : {0, 1, Q::candidates - 1}) {
            if (q.error(b, q.candidate(fitted, k), fitted) > most) ++wrong;
        }
    }
    CHECK(wrong == 0);
}

template <class Q>
void check_laws() {
    CAPTURE(Q{}.name().str());
    const auto n = static_cast<std::size_t>(Q::block_size);
    std::size_t wrong = 0;
    for (const std::uint32_t bits : {0x7f800000u, 0xff800000u, 0x7fc00000u, 0xffc00001u}) {
        for (const std::size_t at : {std::size_t{0}, n / 2, n - 1}) {
            std::vector<float> block = normal_floats(n, 3);
            block[at] = float_of(bits);
            for (const float x : search<Q>(block).decoded)
                if (!is_nan(x)) ++wrong;
        }
    }
    CHECK(wrong == 0);
    for (const float zero : {0.0f, -0.0f}) {
        for (const float x : search<Q>(std::vector<float>(n, zero)).decoded) CHECK(x == 0.0f);
    }
    constexpr float largest = std::numeric_limits<float>::max();
    for (const float x : {float_of(1), -float_of(77), 0x1p-126f, 0x1p-120f, largest, -largest, largest / 2, 1e37f}) {
        const std::vector<float> block{x, 0.5f * x, 0.0f, 0.3f * x, 0.9f * x};
        const found<Q> best = search<Q>(block);
        const bool all_nan = std::all_of(best.decoded.begin(), best.decoded.end(), is_nan);
        CAPTURE(x);
        if (all_nan && std::fabs(x) > 60000.0f) continue;
        for (std::size_t i = 0; i != block.size(); ++i) {
            CHECK(std::fabs(static_cast<double>(best.decoded[i]) - static_cast<double>(block[i])) <=
                  static_cast<double>(Q{}.error_bound(block[i], best.params)));
        }
    }
}

}  // namespace

TEST_CASE("scale_search keeps the range of least squared error", "[quantizer][scale_search]") {
    check_search<4, 128, symmetric, float>(128);
    check_search<4, 128, signed_absmax, half>(128);
    check_search<4, 32, asymmetric, half>(128);
    check_search<2, 8, symmetric, bfloat16>(128);
    check_search<6, 512, asymmetric, float, 32>(64);
    check_search<8, 256, symmetric, float>(64);
}

TEST_CASE("scale_search clips no outlier of a large block to serve the others", "[quantizer][scale_search]") {
    check_search<8, 2048, symmetric, float>(16);
    check_search<4, 16384, signed_absmax, float>(64);
}

TEST_CASE("of equal errors the first range is kept", "[quantizer][scale_search]") {
    // The toy's errors are 5, 3, 3, 9 for each element.
    CHECK(search<toy_searching>(normal_floats(16, 1)).params.candidate == 1);
    CHECK(search<toy_searching>(normal_floats(5, 1)).params.candidate == 1);
    // Nothing is lost at all, so nothing is narrower.
    const std::vector<float> exact{7.0f, -3.0f, 0.0f, 1.0f};
    CHECK(search<q4>(exact).params.scale == 1.0f);
    CHECK(search<q4>(std::vector<float>(128, 0.0f)).params.scale == 0.0f);
}

TEST_CASE("errors of a whole block fit their sum", "[quantizer][scale_search]") {
    check_errors_add_up<q4>();
    check_errors_add_up<scale_search<block_integer<8, 65536, asymmetric>>>();
    check_errors_add_up<scale_search<block_integer<2, 8, signed_absmax>, 32>>();
}

TEST_CASE("scale_search keeps the laws of quantizers", "[quantizer][scale_search]") {
    check_laws<q4>();
    check_laws<scale_search<block_integer<4, 128, signed_absmax, half>>>();
    check_laws<scale_search<block_integer<4, 32, asymmetric, half>>>();
}

TEST_CASE("the k-th range is the fitted one times 1 - k / 50, rounded once a step", "[quantizer][scale_search]") {
    // Eleven is one of the numbers for which a fused multiplication and subtraction would give another float.
    const q4 q;
    volatile int any = 0;
    for (int k = 1; k != 16; ++k) {
        const float factor = float_sum(1.0f, -float_product(0.02f, static_cast<float>(k + any)));
        CHECK(bits_of(q.candidate({1.0f}, k + any).scale) == bits_of(factor));
    }
}

TEST_CASE("names of quantizers with a search", "[quantizer][scale_search]") {
    CHECK(q4{}.name().str() == "int4:128:search16");
    CHECK(scale_search<block_integer<8, 256, symmetric, half>, 2>{}.name().str() == "int8:256:fp16:search2");
}
