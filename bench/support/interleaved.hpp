#pragma once
/// \file
/// Timing of contestants against each other on a shared machine.

#include <chrono>
#include <functional>
#include <span>
#include <vector>

namespace zeropp_bench {

/// Seconds of every timed iteration of every contestant, on this rank. Contestants alternate in every iteration, so
/// that disturbances affect all equally. Each starts when all ranks have passed barrier().
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
