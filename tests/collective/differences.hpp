#pragma once
/// \file
/// Weights that walk, and what replicas that follow them by quantized differences hold.

#include "collective/ranks.hpp"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace collective_test {

/// The replica after one gather, from all ranks' weights. What is not finite in it counts as 0.
template <class T, class Q>
std::vector<float> updated(const std::vector<float>& weights, const std::vector<float>& replica, std::size_t ranks,
                           const Q& q) {
    const auto base = [&](std::size_t i) { return std::isfinite(replica[i]) ? static_cast<double>(replica[i]) : 0.0; };
    std::vector<float> differences;
    for (std::size_t i = 0; i != weights.size(); ++i) {
        differences.push_back(static_cast<float>(reference::single(static_cast<double>(weights[i]) - base(i))));
    }
    std::vector<float> after;
    for (const float x : reference::gathered(differences, ranks, described(q), reference::fp32)) {
        const double sum = reference::single(base(after.size()) + static_cast<double>(x));
        after.push_back(static_cast<float>(format_of<T>.rounded(sum)));
    }
    return after;
}

/// Weights after `step` steps of a walk: every element moves by about a thousandth of itself or of one.
inline std::vector<float> walked(std::vector<float> weights, std::uint64_t step) {
    zeropp_test::random_source random(step);
    for (float& w : weights) w += static_cast<float>((2 * random.uniform() - 1) * 1e-3);
    return weights;
}

}  // namespace collective_test
