#pragma once
/// \file
/// Times of all ranks together, from times of each.

#include "support/ranks.hpp"
#include "support/statistics.hpp"

#include <algorithm>
#include <cstddef>
#include <ctime>
#include <functional>
#include <span>
#include <utility>
#include <vector>

namespace zeropp_bench {

/// Wraps call(): each run appends to `spent` the processor time of this process during the call, in seconds.
inline std::function<void()> watched(std::function<void()> call, std::vector<double>& spent) {
    return [call = std::move(call), &spent] {
        const std::clock_t start = std::clock();
        call();
        spent.push_back(static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC);
    };
}

/// Summary of each iteration's time on its slowest rank, where a collective ends. Collective.
inline timing slowest(rank_context& ranks, const std::vector<double>& seconds) {
    const std::vector<double> all = ranks.gather(std::span<const double>(seconds));
    std::vector<double> longest(seconds.size());
    for (std::size_t i = 0; i != all.size(); ++i) {
        double& at = longest[i % seconds.size()];
        at = std::max(at, all[i]);
    }
    return summary(longest);
}

}  // namespace zeropp_bench
