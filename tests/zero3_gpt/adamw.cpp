#include "adamw.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numbers>
#include <stdexcept>
#include <vector>

#include "host_device.hpp"
#include "random.hpp"
#include "support/catch.hpp"

namespace {

using zero3_gpt::adamw_options;

using adamw = zero3_gpt::adamw<zero3_gpt::host_device>;

const zero3_gpt::host_device device;

constexpr adamw_options options{.beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-6, .weight_decay = 0.1};
constexpr std::size_t size = 37;
constexpr std::size_t decayed = 20;

bool near(double a, double b) { return std::abs(a - b) < 1e-12; }

/// Changes from step to step: AdamW all but undoes a constant factor.
double clipping(int step) { return step % 3 == 0 ? 0.25 : 1.0; }

double rate(int step) { return 0.01 * (step + 1); }

float gradient_at(int step, std::size_t i) { return zero3_gpt::random_normal(3, static_cast<std::uint64_t>(step), i); }

std::vector<float> initial_weights() {
    std::vector<float> weights(size);
    for (std::size_t i = 0; i < size; ++i) weights[i] = zero3_gpt::random_normal(4, 0, i);
    return weights;
}

/// Ten steps on the shard [first, first + count) of the array.
std::vector<float> train_shard(std::size_t first, std::size_t count) {
    const auto all = initial_weights();
    std::vector<float> weights(count);
    std::vector<float> gradient(count);
    for (std::size_t i = 0; i < count && first + i < size; ++i) weights[i] = all[first + i];
    adamw optimizer{device, options, count, std::clamp(decayed, first, first + count) - first};
    for (int step = 0; step < 10; ++step) {
        for (std::size_t i = 0; i < count && first + i < size; ++i) gradient[i] = gradient_at(step, first + i);
        optimizer.update(weights, gradient, rate(step), clipping(step));
    }
    CHECK(optimizer.steps() == 10);
    return weights;
}

}  // namespace

TEST_CASE("AdamW follows its definition", "[zero3_gpt][adamw]") {
    const auto weights = train_shard(0, size);
    const auto start = initial_weights();
    for (std::size_t i = 0; i < size; ++i) {
        double weight = static_cast<double>(start[i]);
        double first = 0.0;
        double second = 0.0;
        for (int step = 0; step < 10; ++step) {
            const double slope = clipping(step) * static_cast<double>(gradient_at(step, i));
            if (i < decayed) weight -= rate(step) * 0.1 * weight;
            first = 0.9 * first + 0.1 * slope;
            second = 0.95 * second + 0.05 * slope * slope;
            const double mean = first / (1.0 - std::pow(0.9, step + 1));
            const double variance = second / (1.0 - std::pow(0.95, step + 1));
            weight -= rate(step) * mean / (std::sqrt(variance) + 1e-6);
        }
        CAPTURE(i);
        CHECK(std::abs(static_cast<double>(weights[i]) - weight) < 2e-6);
    }
}

TEST_CASE("shards of any cut, padding included, give the bits of the whole", "[zero3_gpt][adamw]") {
    const auto whole = train_shard(0, size);
    const std::size_t shard = GENERATE(1U, 7U, 10U, 40U);
    for (std::size_t first = 0; first < size; first += shard) {
        const auto part = train_shard(first, shard);
        for (std::size_t i = 0; i < shard; ++i) REQUIRE(part[i] == (first + i < size ? whole[first + i] : 0.0F));
    }
}

TEST_CASE("AdamW refuses arrays that are not its shard", "[zero3_gpt][adamw]") {
    adamw optimizer{device, options, 4, 4};
    std::vector<float> four(4);
    std::vector<float> five(5);
    CHECK_THROWS_AS(optimizer.update(five, four, 0.1), std::invalid_argument);
    CHECK_THROWS_AS(optimizer.update(four, five, 0.1), std::invalid_argument);
    CHECK(optimizer.steps() == 0);
}

TEST_CASE("the learning rate warms up and falls along a cosine", "[zero3_gpt][adamw]") {
    const zero3_gpt::learning_rate_schedule schedule{.peak = 2.0, .floor = 0.5, .warmup_steps = 4, .total_steps = 24};
    CHECK(schedule.at(0) == 0.5);
    CHECK(schedule.at(3) == 2.0);
    CHECK(schedule.at(4) == 2.0);
    CHECK(near(schedule.at(9), 0.5 + 0.75 * (1.0 + std::numbers::sqrt2 / 2)));
    CHECK(near(schedule.at(14), 1.25));
    CHECK(schedule.at(24) == 0.5);
    CHECK(schedule.at(1000) == 0.5);
    for (int step = 4; step < 24; ++step) CHECK(schedule.at(step) > schedule.at(step + 1));

    const zero3_gpt::learning_rate_schedule without_warmup{
        .peak = 1.0, .floor = 0.0, .warmup_steps = 0, .total_steps = 2};
    CHECK(without_warmup.at(0) == 1.0);
    CHECK(near(without_warmup.at(1), 0.5));
}
