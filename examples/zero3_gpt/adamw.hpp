#pragma once

#include "device.hpp"
#include "layers.hpp"

#include <zeropp/core/config.hpp>
#include <zeropp/core/view.hpp>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numbers>
#include <stdexcept>
#include <string>

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

    /// Rate of step 0, 1, ...; it is above 0 for step 0 already.
    [[nodiscard]] double at(std::int64_t step) const {
        if (step < warmup_steps) return peak * static_cast<double>(step + 1) / static_cast<double>(warmup_steps);
        if (step >= total_steps) return floor;
        const double progress =
            static_cast<double>(step - warmup_steps) / static_cast<double>(total_steps - warmup_steps);
        return floor + 0.5 * (peak - floor) * (1.0 + std::cos(std::numbers::pi * progress));
    }
};

namespace step {

struct scale {
    float factor;
    float* x;

    ZEROPP_HOST_DEVICE void operator()(std::int64_t i) const { x[i] *= factor; }
};

/// AdamW's step on one element.
struct adamw {
    float beta1;
    float beta2;
    // 1 - beta is computed in double and rounded once: in float, 1 - 0.999F is off by 1e-5.
    float rest1;
    float rest2;
    float gradient_scale;
    float step_size;
    float inverse_root;
    float epsilon;
    const float* gradient;
    float* first_moment;
    float* second_moment;
    float* weights;

    ZEROPP_HOST_DEVICE void operator()(std::int64_t i) const {
        const float slope = gradient_scale * gradient[i];
        first_moment[i] = beta1 * first_moment[i] + rest1 * slope;
        second_moment[i] = beta2 * second_moment[i] + rest2 * slope * slope;
        weights[i] -= step_size * first_moment[i] / (std::sqrt(second_moment[i]) * inverse_root + epsilon);
    }
};

}  // namespace step

/// AdamW (Loshchilov and Hutter, arXiv 1711.05101) on this rank's shard of one unit. Owns the moments; the caller owns
/// the fp32 master weights. Updates each element by itself, so results do not depend on the division into shards.
template <class Device>
class adamw {
public:
    using space = typename Device::space;

    /// For a shard of `size` elements; weight decay applies to the first `decayed`. Keeps a reference to `device`.
    adamw(const Device& device, const adamw_options& options, std::size_t size, std::size_t decayed)
        : device_(&device), options_(options), decayed_(decayed), first_moment_(size), second_moment_(size) {
        device.for_each(static_cast<std::int64_t>(size), step::fill{0.0F, first_moment_.data()});
        device.for_each(static_cast<std::int64_t>(size), step::fill{0.0F, second_moment_.data()});
    }

    /// Takes one step. `gradient_scale` multiplies the gradient first: for clipping, or the mean over micro-batches.
    template <zeropp::mutable_array_in<space> Weights, zeropp::array_in<space> Gradient>
    void update(Weights&& weights, const Gradient& gradient, double learning_rate, double gradient_scale = 1.0) {
        const auto out = zeropp::as_view<space>(weights);
        const auto in = zeropp::as_view<space>(gradient);
        if (out.size() != first_moment_.size() || in.size() != first_moment_.size()) {
            throw std::invalid_argument("adamw: the shard has " + std::to_string(first_moment_.size()) +
                                        " elements, given " + std::to_string(out.size()) + " weights and " +
                                        std::to_string(in.size()) + " gradient elements");
        }
        ++steps_;
        const double correction1 = 1.0 - std::pow(options_.beta1, static_cast<double>(steps_));
        const double correction2 = 1.0 - std::pow(options_.beta2, static_cast<double>(steps_));

        // Decoupled decay, before the step as in PyTorch.
        const auto keep = static_cast<float>(1.0 - learning_rate * options_.weight_decay);
        device_->for_each(static_cast<std::int64_t>(decayed_), step::scale{keep, out.data()});
        device_->for_each(static_cast<std::int64_t>(out.size()),
                          step::adamw{.beta1 = static_cast<float>(options_.beta1),
                                      .beta2 = static_cast<float>(options_.beta2),
                                      .rest1 = static_cast<float>(1.0 - options_.beta1),
                                      .rest2 = static_cast<float>(1.0 - options_.beta2),
                                      .gradient_scale = static_cast<float>(gradient_scale),
                                      .step_size = static_cast<float>(learning_rate / correction1),
                                      .inverse_root = static_cast<float>(1.0 / std::sqrt(correction2)),
                                      .epsilon = static_cast<float>(options_.epsilon),
                                      .gradient = in.data(),
                                      .first_moment = first_moment_.data(),
                                      .second_moment = second_moment_.data(),
                                      .weights = out.data()});
    }

    [[nodiscard]] std::int64_t steps() const noexcept { return steps_; }

    /// The first and the second moments, an element for each weight.
    [[nodiscard]] std::array<zeropp::view<float, space>, 2> moments() const {
        return {first_moment_.view(), second_moment_.view()};
    }
    /// Continues after `steps` steps, with the moments that `moments()` holds now.
    void resume(std::int64_t steps) { steps_ = steps; }

    /// Bytes of the moments.
    [[nodiscard]] std::size_t memory_bytes() const noexcept {
        return (first_moment_.size() + second_moment_.size()) * sizeof(float);
    }

private:
    const Device* device_;
    adamw_options options_;
    std::size_t decayed_;
    std::int64_t steps_ = 0;
    array<float, space> first_moment_;
    array<float, space> second_moment_;
};

}  // namespace zero3_gpt
