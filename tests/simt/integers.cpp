#include "simt/cuda_emulation.hpp"

#include "support/catch.hpp"
#include "support/samples.hpp"

#include <zeropp/codec/cuda.cuh>
#include <zeropp/quantizer/block_integer.hpp>
#include <zeropp/quantizer/hadamard.hpp>
#include <zeropp/quantizer/integer_scheme.hpp>
#include <zeropp/quantizer/quantizer.hpp>
#include <zeropp/quantizer/scale.hpp>
#include <zeropp/quantizer/small_float.hpp>
#include <zeropp/quantizer/stochastic.hpp>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

using zeropp::bfloat16;
using zeropp::bits_float;
using zeropp::block_integer;
using zeropp::float_bits;
using zeropp::half;
namespace detail = zeropp::detail;

namespace {

/// A user's quantizer, whose highest code is not the largest that its bits hold.
struct up_to_5 : block_integer<4, 8> {
    static constexpr std::int32_t highest_code = 5;
    static constexpr bool reaches_above = true;

    params fit(const stats& s) const noexcept {
        if (s.absmax >= zeropp::infinity_bits) return {zeropp::quiet_nan};
        return {zeropp::stored_step<float>(bits_float(s.absmax), 6.0f)};
    }
    std::uint32_t encode(float x, const params& p) const noexcept {
        return static_cast<std::uint32_t>(zeropp::nearest_code(x, p.scale, -6, highest_code)) & 0xfu;
    }
    static zeropp::short_text name() { return "int4:8:up_to_5"; }
};

/// A user's integers. Only its types are of interest.
template <class Params>
struct integers_with {
    static constexpr int block_size = 32;
    static constexpr int code_bits = 4;
    static constexpr std::int32_t highest_code = 7;
    static constexpr bool reaches_above = false;

    using stats = zeropp::symmetric::stats;
    using params = Params;
    params fit(const stats&) const noexcept { return {}; }
    std::uint32_t encode(float, const params&) const noexcept { return 0; }
    float decode(std::uint32_t, const params&) const noexcept { return 0; }
    float multiplier(const params&) const noexcept { return 0; }
    static zeropp::short_text name() { return "integers"; }
};

/// Parameters of one byte, by default 1; and of 2 and 4 bytes that need not be in one aligned word.
struct power {
    zeropp::e8m0 step{127};
};
struct two_bytes {
    std::uint8_t step, factor;
};
struct two_halves {
    half step, factor;
};

/// A user's quantizer that enlarges decoded values: scales have 16 bits, multipliers more.
struct enlarged : block_integer<4, 128, zeropp::symmetric, half> {
    float multiplier(const params& p) const noexcept { return static_cast<float>(p.scale) * 1.1f; }
    std::uint32_t encode(float x, const params& p) const noexcept {
        return static_cast<std::uint32_t>(zeropp::nearest_code(x, multiplier(p), -7, 7)) & 0xfu;
    }
    float decode(std::uint32_t code, const params& p) const noexcept {
        return zeropp::product(static_cast<float>(detail::unfold_sign<4>(code)), multiplier(p));
    }
};

}  // namespace

template <>
inline constexpr bool zeropp::has_integer_arithmetic<up_to_5> = true;
template <>
inline constexpr bool zeropp::has_integer_arithmetic<enlarged> = true;
template <class Params>
inline constexpr bool zeropp::has_integer_arithmetic<integers_with<Params>> = true;

namespace {

/// Both signs of every half and every bfloat16; floats of every exponent, with the ends of their range of mantissas and
/// two between.
template <class Scale>
std::vector<float> all_scales() {
    std::vector<float> scales;
    if constexpr (std::is_same_v<Scale, float>) {
        for (std::uint32_t exponent = 0; exponent != 512; ++exponent) {
            for (const std::uint32_t mantissa : {0u, 1u, 0x555555u, 0x2bcdefu, 0x7fffffu}) {
                scales.push_back(bits_float(exponent << 23 | mantissa));
            }
        }
    } else {
        for (std::uint32_t bits = 0; bits != 65536; ++bits) {
            Scale s;
            s.bits = static_cast<std::uint16_t>(bits);
            scales.push_back(static_cast<float>(s));
        }
    }
    return scales;
}

/// round(code * scale), by a double that holds the product; +0 for zero.
float product_of(int code, float scale) {
    return static_cast<float>(static_cast<double>(code) * static_cast<double>(scale) + 0.0);
}

/// What kernel() counts in a warp, each thread for itself, told its number.
template <class Kernel>
std::size_t counted_by_warp(Kernel kernel) {
    std::size_t all = 0;
    const std::string fault = zeropp_test::simt::run_grid(dim3(1), dim3(32), [&] { all += kernel(threadIdx.x); });
    CHECK(fault == "");
    return all;
}

/// Every thread of a warp takes other scales, but all come together.
template <int Bits, class Scale>
std::size_t wrong_decodings() {
    const std::vector<float> scales = all_scales<Scale>();
    REQUIRE(scales.size() % 32 == 0);
    return counted_by_warp([&](unsigned thread) {
        const detail::integer_converter<Bits> integers(thread);
        std::size_t wrong = 0;
        for (std::size_t s = thread; s < scales.size(); s += 32) {
            for (std::uint32_t first = 0; first < (1u << Bits); first += 8) {
                std::uint32_t codes[8];
                for (std::uint32_t i = 0; i != 8; ++i) codes[i] = (first + i) % (1u << Bits);
                const auto is_wrong = [&](int i, float sum, float begin) {
                    const auto code = static_cast<int>(codes[i]);
                    const int integer = code < 1 << (Bits - 1) ? code : code - (1 << Bits);
                    const float expected = product_of(integer, scales[s]);
                    return float_bits(sum) != float_bits(begin == 0 ? expected : begin + expected) &&
                           !(std::isnan(sum) && std::isnan(expected));
                };
                unsigned seen = 0;
                integers.convert(detail::packed_codes<Bits>::of(codes), [&](int i, int j, float x, float y) {
                    seen |= 1u << i | 1u << j;
                    wrong += is_wrong(i, detail::fused(x, scales[s], 0.0f), 0) ||
                             is_wrong(j, detail::fused(y, scales[s], 0.0f), 0);
                    float a = 0;
                    float b = 1;
                    detail::add_products(a, b, x, y, scales[s]);
                    wrong += is_wrong(i, a, 0) || is_wrong(j, b, 1);
                    if constexpr (!std::is_same_v<Scale, float>) {
                        // The last bit of this sum would tell of a product that is rounded before or not.
                        a = 0;
                        b = 0x1.555556p-5f;
                        detail::add_exact_products(a, b, x, y, scales[s]);
                        wrong += is_wrong(i, a, 0) || is_wrong(j, b, 0x1.555556p-5f);
                    }
                });
                wrong += seen != 0xff;
            }
        }
        return wrong;
    });
}

/// Eight elements of blocks of every magnitude, with the specials that a block may hold.
std::vector<std::array<float, 8>> blocks() {
    std::vector<std::array<float, 8>> found;
    zeropp_test::random_source random(1);
    constexpr float infinity = std::numeric_limits<float>::infinity();
    constexpr float largest = std::numeric_limits<float>::max();
    for (int exponent = -149; exponent != 128; ++exponent) {
        for (int n = 0; n != 8; ++n) {
            std::array<float, 8> x;
            for (float& e : x) e = std::ldexp(static_cast<float>(random.normal()), exponent);
            // Ties between codes, the extreme of either sign, and both.
            if (n == 1) x = {7.0f, 6.5f, -6.5f, 5.5f, 0.5f, -0.5f, 3.5f, 1.5f};
            if (n == 2) x = {-127.0f, 126.5f, 127.0f, 0.5f, -1.5f, 2.5f, -63.5f, 0.0f};
            if (n == 1 || n == 2) {
                for (float& e : x) e = std::ldexp(e, exponent - 7);
            }
            if (n == 3) x[5] = x[2] = 0.0f, x[3] = -0.0f;
            if (n == 4) x[7] = exponent % 2 == 0 ? infinity : -infinity;
            if (n == 5) x[0] = std::numeric_limits<float>::quiet_NaN();
            found.push_back(x);
        }
    }
    found.push_back({});
    found.push_back({largest, -largest, largest / 2, 1.0f, 0x1p-149f, -0x1p-149f, 0.0f, -0.0f});
    found.push_back({-largest, 0x1p-126f, 0.0f, 1.0f, largest / 3, -largest / 7, 0.0f, -0.0f});
    found.push_back({0x1p-149f, -0x1p-149f, 0.0f, 0x1p-148f, 0.0f, 0.0f, 0.0f, -0.0f});
    return found;
}

template <class Q>
std::size_t wrong_encodings() {
    std::size_t wrong = 0;
    const Q q;
    for (const auto& x : blocks()) {
        typename Q::stats stats;
        for (const float e : x) stats.add(e);
        const typename Q::params params = q.fit(stats);
        float values[8];
        std::uint32_t expected[8];
        for (int i = 0; i != 8; ++i) {
            values[i] = x[static_cast<std::size_t>(i)];
            expected[i] = q.encode(values[i], params);
        }
        for (const int valid : {8, 5, 0}) {
            auto codes = detail::encode_granule(q, values, params, valid, 1.0f);
            for (int i = 0; i != 8; ++i) wrong += codes.at(i) != (i < valid ? expected[i] : 0u);
        }
    }
    return wrong;
}

template <int Bits>
void check_width() {
    CAPTURE(Bits);
    CHECK(wrong_decodings<Bits, float>() == 0);
    CHECK(wrong_decodings<Bits, half>() == 0);
    CHECK(wrong_decodings<Bits, bfloat16>() == 0);
    CHECK(wrong_encodings<block_integer<Bits, 8>>() == 0);
    CHECK(wrong_encodings<block_integer<Bits, 8, zeropp::symmetric, half>>() == 0);
    CHECK(wrong_encodings<block_integer<Bits, 8, zeropp::symmetric, bfloat16>>() == 0);
    CHECK(wrong_encodings<block_integer<Bits, 8, zeropp::signed_absmax>>() == 0);
    CHECK(wrong_encodings<block_integer<Bits, 8, zeropp::signed_absmax, half>>() == 0);
    CHECK(wrong_encodings<block_integer<Bits, 8, zeropp::signed_absmax, bfloat16>>() == 0);
}

}  // namespace

TEST_CASE("kernels: the short ways of integers give the bits of their arithmetic", "[simt][kernels]") {
    [&]<int... More>(std::integer_sequence<int, More...>) {
        (check_width<2 + More>(), ...);
    }(std::make_integer_sequence<int, 7>());
    CHECK(wrong_encodings<up_to_5>() == 0);
}

// mma.m16n8k8 by PTX's manual: where each thread's elements are in a warp's matrices, of which a has 16 rows and 8
// columns. Its elements are numbered here.
TEST_CASE("kernels: the identity matrix of a warp gives each thread its own", "[simt][kernels]") {
    double a[16][8];
    double b[8][8];
    const auto row_of_a = [](int lane, int word) { return lane / 4 + 8 * word; };
    const auto column_of_a = [](int lane, int i) { return lane % 4 * 2 + i; };
    for (int lane = 0; lane != 32; ++lane) {
        const detail::integer_converter<4> integers(static_cast<unsigned>(lane));
        for (int i = 0; i != 2; ++i) {
            half h;
            h.bits = static_cast<std::uint16_t>(integers.identity >> (16 * i));
            b[lane % 4 * 2 + i][lane / 4] = static_cast<double>(static_cast<float>(h));
            for (int word = 0; word != 2; ++word)
                a[row_of_a(lane, word)][column_of_a(lane, i)] = 100 * lane + 10 * word + i;
        }
    }
    for (int lane = 0; lane != 32; ++lane) {
        for (int n = 0; n != 4; ++n) {
            const int row = n < 2 ? lane / 4 : lane / 4 + 8;
            const int column = lane % 4 * 2 + n % 2;
            double sum = 0;
            for (int k = 0; k != 8; ++k) sum += a[row][k] * b[k][column];
            CHECK(sum == 100 * lane + 10 * (n / 2) + n % 2);
        }
    }
}

TEST_CASE("kernels: only what says so itself has the short ways of integers", "[simt][kernels]") {
    struct derived : block_integer<4, 128> {
        float decode(std::uint32_t, const params&) const noexcept { return 1.0f; }
    };
    STATIC_REQUIRE(zeropp::integer_quantizer<block_integer<4, 128>>);
    STATIC_REQUIRE(zeropp::integer_quantizer<block_integer<2, 128, zeropp::signed_absmax, half>>);
    STATIC_REQUIRE(!zeropp::integer_quantizer<block_integer<4, 128, zeropp::asymmetric>>);
    STATIC_REQUIRE(!zeropp::integer_quantizer<derived>);
    STATIC_REQUIRE(zeropp::integer_quantizer<zeropp::stochastic<zeropp::hadamard<block_integer<4, 128>>>>);
    STATIC_REQUIRE(zeropp::quantizer<derived>);
    STATIC_REQUIRE(detail::has_exact_products<
                   zeropp::stochastic<zeropp::hadamard<block_integer<8, 128, zeropp::symmetric, half>>>>);
    STATIC_REQUIRE(detail::has_exact_products<block_integer<8, 128, zeropp::signed_absmax, bfloat16>>);
    STATIC_REQUIRE(!detail::has_exact_products<block_integer<4, 128>>);
    STATIC_REQUIRE(zeropp::integer_quantizer<enlarged>);
    STATIC_REQUIRE(!detail::has_exact_products<enlarged>);
    STATIC_REQUIRE(detail::tiles_ahead<detail::sum_source<block_integer<4, 32>, 2>, 4, 4>::possible);
    const auto never_ahead = []<class... Params>(std::tuple<Params...>) {
        return ((zeropp::integer_quantizer<integers_with<Params>> &&
                 !detail::tiles_ahead<detail::sum_source<integers_with<Params>, 2>, 4, 4>::possible) &&
                ...);
    };
    STATIC_REQUIRE(never_ahead(std::tuple<power, two_bytes, two_halves>()));
}

TEST_CASE("kernels: parameters of blocks without elements are zeros, whatever a user's defaults", "[simt][kernels]") {
    std::byte params[2] = {std::byte{9}, std::byte{9}};
    const detail::message_section<integers_with<power>> section{32, 64, 2, 0, nullptr, params};
    section.store_params<false>({{5}}, 0);
    section.store_params<false>({{5}}, 1);
    CHECK(params[0] == std::byte{5});
    CHECK(params[1] == std::byte{0});
}
