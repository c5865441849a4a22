#pragma once
/// \file
/// Times of all ranks together.

#include "support/interleaved.hpp"
#include "support/options.hpp"
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

/// Times of a contestant, in seconds.
struct rank_times {
    /// Of each iteration's slowest rank, where a collective ends.
    timing slowest;
    /// Processor time of all ranks' processes together in one iteration, the median. Waiting may spend it, too.
    double processor;
};

namespace detail {
/// Combines all ranks' values of each iteration: f(a, b), from 0. Collective.
template <class F>
timing over_ranks(rank_context& ranks, std::span<const double> of_iterations, F f) {
    const std::vector<double> all = ranks.gather(of_iterations);
    std::vector<double> combined(of_iterations.size());
    for (std::size_t i = 0; i != all.size(); ++i) {
        double& at = combined[i % combined.size()];
        at = f(at, all[i]);
    }
    return summary(combined);
}
}  // namespace detail

/// Times `contestants` in turns, see time_interleaved, as often as the options say. Collective.
inline std::vector<rank_times> measure_in_turns(rank_context& ranks, const options& o,
                                                std::vector<std::function<void()>> contestants) {
    std::vector<std::vector<double>> spent(contestants.size());
    for (std::size_t c = 0; c != contestants.size(); ++c) {
        contestants[c] = [call = std::move(contestants[c]), &mine = spent[c]] {
            const std::clock_t start = std::clock();
            call();
            mine.push_back(static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC);
        };
    }
    const auto seconds = time_interleaved(contestants, o.warmup_iterations, o.iterations, [&] { ranks.barrier(); });
    std::vector<rank_times> times;
    for (std::size_t c = 0; c != contestants.size(); ++c) {
        std::span<double> timed = std::span(spent[c]).last(seconds[c].size());
        if (!ranks.speaks_for_process()) std::ranges::fill(timed, 0.0);
        const auto longer = [](double a, double b) { return std::max(a, b); };
        times.push_back(
            {detail::over_ranks(ranks, seconds[c], longer), detail::over_ranks(ranks, timed, std::plus<>()).median});
    }
    return times;
}

}  // namespace zeropp_bench
