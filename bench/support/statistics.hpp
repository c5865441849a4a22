#pragma once
/// \file
/// Summaries of repeated measurements.

#include <algorithm>
#include <cstddef>
#include <stdexcept>
#include <vector>

namespace zeropp_bench {

/// Seconds per iteration.
struct timing {
    double median = 0;
    /// Least time that at least 99 % of the iterations do not exceed: the longest time, for fewer than 100.
    double p99 = 0;
};

/// Throws std::invalid_argument if `seconds` is empty.
inline timing summary(std::vector<double> seconds) {
    if (seconds.empty()) throw std::invalid_argument("a summary of no measurements");
    std::sort(seconds.begin(), seconds.end());
    const std::size_t n = seconds.size();
    const std::size_t rank99 = (99 * n + 99) / 100;
    return {(seconds[(n - 1) / 2] + seconds[n / 2]) / 2, seconds[rank99 - 1]};
}

}  // namespace zeropp_bench
