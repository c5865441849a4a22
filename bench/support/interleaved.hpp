#pragma once
/// \file
/// Timing things against each other on a machine that others use too.

#include <chrono>
#include <functional>
#include <span>
#include <vector>

namespace zeropp_bench {

/// Seconds of every timed iteration of every contestant, on this rank. The contestants take turns, iteration by
/// iteration, so that what disturbs the machine disturbs them alike; each starts when all ranks have passed barrier().
inline std::vector<std::vector<double>> time_interleaved(std::span<const std::function<void()>> contestants,
                                                         int warmup_iterations, int iterations,
                                                         const std::function<void()>& barrier) {
    using clock = std::chrono::steady_clock;
    std::vector<std::vector<double>> seconds(contestants.size());
    for (int i = -warmup_iterations; i != iterations; ++i) {
        for (std::size_t c = 0; c != contestants.size(); ++c) {
            barrier();
            const auto start = clock::now();
            contestants[c]();
            const std::chrono::duration<double> taken = clock::now() - start;
            if (i >= 0) seconds[c].push_back(taken.count());
        }
    }
    return seconds;
}

}  // namespace zeropp_bench
