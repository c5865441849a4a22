#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numbers>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "model.hpp"

namespace zero3_gpt {

struct adamw_options {
    double beta1 = 0.9;
    double beta2 = 0.999;
    double epsilon = 1e-8;
    double weight_decay = 0.0;
};

/// Linear warm-up to `peak` over `warmup_steps`, then half a cosine down to `floor` at `total_steps`, then `floor`.
struct learning_rate_schedule {
    double peak = 1e-3;
    double floor = 0.0;
    std::int64_t warmup_steps = 0;
    std::int64_t total_steps = 1;

    /// The rate of step 0, 1, ...; the first step already moves.
    [[nodiscard]] double at(std::int64_t step) const {
        if (step < warmup_steps) return peak * static_cast<double>(step + 1) / static_cast<double>(warmup_steps);
        if (step >= total_steps) return floor;
        const double progress =
            static_cast<double>(step - warmup_steps) / static_cast<double>(total_steps - warmup_steps);
        return floor + 0.5 * (peak - floor) * (1.0 + std::cos(std::numbers::pi * progress));
    }
};

/// AdamW (Loshchilov and Hutter, arXiv 1711.05101) on this rank's shard of one unit: the moments live here, the fp32
/// master weights with the caller. Every element is updated by itself, so the result does not depend on how a unit
/// is cut into shards.
class adamw {
public:
    /// The shard is the unit's flat indices [first, first + size); it may reach past the unit's end, as padding does.
    /// Weight decay applies to the indices in `decayed`.
    adamw(const adamw_options& options, std::size_t first, std::size_t size, index_range decayed)
        : options_{options}, decay_begin_{clamp(decayed.begin, first, size)}, decay_end_{clamp(decayed.end, first,
                                                                                               size)},
          first_moment_(size), second_moment_(size) {}

    /// One step. `gradient_scale` multiplies the gradient first: clipping, or the mean over micro-batches.
    void update(std::span<float> weights, std::span<const float> gradient, double learning_rate,
                double gradient_scale = 1.0) {
        if (weights.size() != first_moment_.size() || gradient.size() != first_moment_.size()) {
            throw std::invalid_argument("adamw: the shard has " + std::to_string(first_moment_.size()) +
                                        " elements, given " + std::to_string(weights.size()) + " weights and " +
                                        std::to_string(gradient.size()) + " gradient elements");
        }
        ++steps_;
        const double correction1 = 1.0 - std::pow(options_.beta1, static_cast<double>(steps_));
        const double correction2 = 1.0 - std::pow(options_.beta2, static_cast<double>(steps_));
        const auto beta1 = static_cast<float>(options_.beta1);
        const auto beta2 = static_cast<float>(options_.beta2);
        // 1 - beta is rounded once, from double: in float, 1 - 0.999F is off by 1e-5.
        const auto rest1 = static_cast<float>(1.0 - options_.beta1);
        const auto rest2 = static_cast<float>(1.0 - options_.beta2);
        const auto scale = static_cast<float>(gradient_scale);
        const auto step_size = static_cast<float>(learning_rate / correction1);
        const auto inverse_root = static_cast<float>(1.0 / std::sqrt(correction2));
        const auto epsilon = static_cast<float>(options_.epsilon);

        // Decoupled decay, before the step as in PyTorch.
        const auto keep = static_cast<float>(1.0 - learning_rate * options_.weight_decay);
        for (std::size_t i = decay_begin_; i < decay_end_; ++i) weights[i] *= keep;

        for (std::size_t i = 0; i < weights.size(); ++i) {
            const float slope = scale * gradient[i];
            first_moment_[i] = beta1 * first_moment_[i] + rest1 * slope;
            second_moment_[i] = beta2 * second_moment_[i] + rest2 * slope * slope;
            weights[i] -= step_size * first_moment_[i] / (std::sqrt(second_moment_[i]) * inverse_root + epsilon);
        }
    }

    [[nodiscard]] std::int64_t steps() const noexcept { return steps_; }

private:
    /// A flat index of the unit as an index of the shard.
    static std::size_t clamp(std::size_t index, std::size_t first, std::size_t size) {
        return std::clamp(index, first, first + size) - first;
    }

    adamw_options options_;
    std::size_t decay_begin_;
    std::size_t decay_end_;
    std::int64_t steps_ = 0;
    std::vector<float> first_moment_;
    std::vector<float> second_moment_;
};

}  // namespace zero3_gpt
