#pragma once
/// \file
/// The checker: computes error bounds of results in double, and counts elements beyond them. Of the checked code it
/// uses only a quantizer's `fit` and `error_bound`.

#include <zeropp/core/element.hpp>
#include <zeropp/quantizer/cast_to.hpp>
#include <zeropp/quantizer/quantizer.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <type_traits>
#include <vector>

namespace zeropp_bench {

/// Largest error of rounding a number of this magnitude to a T.
template <class T>
double half_spacing(double magnitude) {
    constexpr int precision = std::is_same_v<T, float> ? 24 : std::is_same_v<T, zeropp::half> ? 11 : 8;
    constexpr int least_exponent = std::is_same_v<T, zeropp::half> ? -14 : -126;
    const int exponent = magnitude > 0 ? std::max(std::ilogb(magnitude), least_exponent) : least_exponent;
    return std::ldexp(1.0, exponent - precision);
}

/// Exact numbers, and the largest error of the elements that stand for them.
struct estimates {
    std::vector<double> exact;
    std::vector<double> error;

    explicit estimates(std::size_t n) : exact(n), error(n) {}

    double largest(std::size_t i) const { return std::fabs(exact[i]) + error[i]; }
};

/// Adds the errors of one encoding and decoding. The first number must begin a block.
template <zeropp::bounded_quantizer Q>
void quantize(const Q& q, estimates& e) {
    for (std::size_t begin = 0; begin < e.exact.size(); begin += static_cast<std::size_t>(Q::block_size)) {
        const std::size_t end = std::min(begin + static_cast<std::size_t>(Q::block_size), e.exact.size());
        // The encoded numbers are known only within their errors, so take the widest possible range.
        typename Q::stats stats;
        for (std::size_t i = begin; i != end; ++i) {
            stats.add(static_cast<float>(e.exact[i] - e.error[i] * (1 + 0x1p-20)));
            stats.add(static_cast<float>(e.exact[i] + e.error[i] * (1 + 0x1p-20)));
        }
        const typename Q::params params = q.fit(stats);
        for (std::size_t i = begin; i != end; ++i) {
            e.error[i] += static_cast<double>(q.error_bound(static_cast<float>(e.largest(i)), params));
        }
    }
}

/// As for other quantizers. The bound of `cast_to` needs the exact element; if that is unknown, rounding bounds it.
template <class T>
void quantize(const zeropp::cast_to<T>& q, estimates& e) {
    for (std::size_t i = 0; i != e.exact.size(); ++i) {
        e.error[i] += e.error[i] == 0 ? static_cast<double>(q.error_bound(static_cast<float>(e.exact[i]), {}))
                                      : half_spacing<T>(e.largest(i));
    }
}

/// The sum of the terms in any order, rounded to Accumulator after each addition.
template <class Accumulator = float>
estimates sum(std::span<const estimates> terms) {
    estimates total(terms.front().exact.size());
    for (std::size_t i = 0; i != total.exact.size(); ++i) {
        double largest = 0;
        for (const estimates& term : terms) {
            total.exact[i] += term.exact[i];
            total.error[i] += term.error[i];
            largest += term.largest(i);
        }
        total.error[i] += static_cast<double>(terms.size() - 1) * half_spacing<Accumulator>(largest);
    }
    return total;
}

/// Result of a check. Tallies of pieces add up.
struct tally {
    std::uint64_t wrong = 0;
    double signal = 0;  // sum of squares of the exact values
    double noise = 0;   // sum of squares of the errors

    void add(const tally& other) {
        wrong += other.wrong;
        signal += other.signal;
        noise += other.noise;
    }

    /// Signal to quantization noise in dB: infinite without noise, NaN if a result was not finite.
    double sqnr_db() const {
        if (!std::isfinite(noise)) return std::numeric_limits<double>::quiet_NaN();
        return noise == 0 ? std::numeric_limits<double>::infinity() : 10 * std::log10(signal / noise);
    }
};

/// Compares results with exact numbers and bounds. An element that is not finite is always wrong.
template <class T>
tally compare(std::span<const T> results, const estimates& expected) {
    tally found;
    for (std::size_t i = 0; i != results.size(); ++i) {
        const double off = static_cast<double>(zeropp::element_traits<T>::to_float(results[i])) - expected.exact[i];
        // An exact number was a T, so storing it does not round.
        const double rounding = expected.error[i] == 0 ? 0 : half_spacing<T>(expected.largest(i));
        const bool right = std::isfinite(off) && std::fabs(off) <= expected.error[i] + rounding;
        found.wrong += right ? 0 : 1;
        found.signal += expected.exact[i] * expected.exact[i];
        found.noise += off * off;
    }
    return found;
}

/// Compares in pieces, to need little memory. expected(begin, n) returns the estimates for `results` in
/// [begin, begin + n). Pieces begin at a block of every quantizer.
template <class T, class Expected>
tally compare_in_pieces(std::span<const T> results, Expected expected) {
    constexpr std::size_t piece = 65536;
    tally found;
    for (std::size_t begin = 0; begin < results.size(); begin += piece) {
        const std::size_t n = std::min(piece, results.size() - begin);
        found.add(compare<T>(results.subspan(begin, n), expected(begin, n)));
    }
    return found;
}

}  // namespace zeropp_bench
