#include <zeropp/quantizer/hadamard.hpp>

#include <zeropp/quantizer/block_integer.hpp>
#include <zeropp/quantizer/stochastic.hpp>

#include "support/catch.hpp"
#include "support/floating_format.hpp"
#include "support/hadamard_reference.hpp"
#include "support/samples.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <type_traits>
#include <vector>

namespace {

using namespace zeropp_test;
using zeropp::asymmetric;
using zeropp::block_integer;
using zeropp::hadamard;
using zeropp::half;
using zeropp::signed_absmax;
using zeropp::stochastic;

using h32 = hadamard<block_integer<4, 128>>;
static_assert(zeropp::rotating_quantizer<h32> && h32::hadamard_size == 32 && h32::block_size == 128);
// Sums that stay rotated are encoded by the codec of the base.
static_assert(std::is_same_v<zeropp::detail::unrotated<h32>::type, block_integer<4, 128>>);

/// Blocks that are bad for a rotation: one outlier, a window's row of the matrix, all equal, rounding errors of one
/// sign.
std::vector<std::vector<float>> telling_blocks(std::size_t n, std::size_t window) {
    std::vector<std::vector<float>> blocks{normal_floats(n, 1), normal_floats(n, 2, 1e-3), normal_floats(n, 3, 1e3),
                                           normal_floats(n / 2 + 3, 4), std::vector<float>(n, 0.7f)};
    random_source random(6);
    for (int round = 0; round != 20; ++round) {
        std::vector<float> outliers = normal_floats(n, random.next(), 0.01);
        outliers[random.below(n)] = 10.0f;
        blocks.push_back(outliers);
        // What rotates into coefficients that all lie half-way between codes, with signs such that the errors add up.
        std::vector<double> coefficients(n);
        for (std::size_t i = 0; i != n; ++i) {
            const double sign = rotation_sign(i % window, static_cast<std::size_t>(round) % window) ? -1.0 : 1.0;
            coefficients[i] = sign * (static_cast<double>(random.below(6)) + 0.5);
        }
        coefficients[0] = 7.0;
        const std::vector<double> elements = rotated(coefficients, window, true);
        blocks.emplace_back(elements.begin(), elements.end());
    }
    return blocks;
}

/// Elements that went through a matrix in double, the quantizer and the matrix back are within its bounds.
template <class Q>
void check_bounds() {
    CAPTURE(Q{}.name().str());
    constexpr auto window = static_cast<std::size_t>(Q::hadamard_size);
    double closest = 0;
    std::size_t beyond = 0;
    for (const auto& block : telling_blocks(static_cast<std::size_t>(Q::block_size), window)) {
        const std::vector<double> coefficients =
            rotated(std::vector<double>(block.begin(), block.end()), window, false);
        typename Q::stats stats;
        for (const double c : coefficients) stats.add(static_cast<float>(c));
        const auto params = Q{}.fit(stats);
        std::vector<double> decoded;
        for (const double c : coefficients)
            decoded.push_back(static_cast<double>(Q{}.decode(Q{}.encode(static_cast<float>(c), params), params)));
        const std::vector<double> back = rotated(decoded, window, true);
        for (std::size_t i = 0; i != block.size(); ++i) {
            const double bound = static_cast<double>(Q{}.error_bound(block[i], params));
            const double off = std::fabs(back[i] - static_cast<double>(block[i]));
            if (!(off <= bound)) ++beyond;
            closest = std::max(closest, off / bound);
        }
    }
    CHECK(beyond == 0);
    // The bound is of use: some block comes near it.
    CHECK(closest > 0.3);
}

}  // namespace

TEST_CASE("rotated elements come back within the stated bound", "[quantizer][hadamard]") {
    check_bounds<h32>();
    check_bounds<hadamard<block_integer<4, 128>, 128>>();
    check_bounds<hadamard<block_integer<8, 64, asymmetric, half>, 8>>();
    check_bounds<hadamard<block_integer<2, 256, signed_absmax, half>, 256>>();
}

TEST_CASE("bounds of a rotation hold whatever is below or above it", "[quantizer][hadamard]") {
    const auto bound = [](auto q) {
        using Q = decltype(q);
        typename Q::stats stats;
        stats.add(7.0f);
        return q.error_bound(1.0f, q.fit(stats));
    };
    // Every coefficient half a step off, the window's 32 adding up with a factor of 1 / 8.
    CHECK(bound(h32{}) == Approx(2.0).epsilon(1e-3));
    CHECK(bound(stochastic<h32>{}) == Approx(4.0).epsilon(1e-3));
    CHECK(bound(hadamard<stochastic<block_integer<4, 128>>>{}) == Approx(4.0).epsilon(1e-3));
}
