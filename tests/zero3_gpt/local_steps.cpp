/// \file
/// Islands train apart between exchanges and are equal after them. One island takes the outer step alone. The average
/// of weights follows them.

#include "local_steps.hpp"

#include "host_pass.hpp"
#include "short_work.hpp"
#include "support/catch.hpp"
#include "trainer.hpp"

#include <zeropp/plan/memory.hpp>
#include <zeropp/topology/flat.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>
#include <vector>

namespace {

using namespace zero3_gpt;

/// Master weights and averages of a unit after each step, for each rank; and the result of rank 0.
struct training {
    std::vector<std::vector<std::vector<float>>> masters, averages;
    run_result result;
};

training train_islands(const std::optional<local_settings>& local, int stage, int watched_unit,
                       double weight_average = 0, const deepspeed_config::adamw_params& optimizer = {}) {
    const workload work = short_work();
    settings s;
    s.steps = 9;
    run_settings run{"run", {}};
    run.config.bf16 = true;
    run.config.zero.stage = stage;
    run.config.zeropp.local_steps = local;
    run.config.zeropp.weight_average = weight_average;
    run.config.optimizer = optimizer;
    pin_blas_to_one_thread();
    const zeropp::two_level nodes(4, 1);
    training t;
    t.masters.resize(4);
    t.averages.resize(4);
    zeropp::run_on_threads(nodes.size(), [&](zeropp::thread_transport ranks) {
        const host_device device;
        const auto rank = static_cast<std::size_t>(ranks.rank());
        const auto keep = [&](auto& engine, int, double) {
            const auto own = engine.masters(watched_unit);
            t.masters[rank].emplace_back(own.data(), own.data() + own.size());
            const auto average = engine.average(watched_unit);
            t.averages[rank].emplace_back(average.data(), average.data() + average.size());
        };
        const run_result result = train<few_formats>(device, s, run, work, ranks, nodes, keep);
        if (rank == 0) t.result = result;
    });
    return t;
}

local_settings every_four(int fragments, int delay) {
    return {.islands = 2, .every = 4, .fragments = fragments, .delay = delay, .quantizer = "int4:128:signed:bf16:h32"};
}

/// A unit's initial weights, whole.
std::vector<float> initial_weights(int unit) {
    const model network(small);
    std::vector<float> weights(network.unit_parameters(unit));
    network.initialise(unit, settings{}.seed, weights);
    return weights;
}

/// Steps, counted from 1, after which counterparts of both islands hold equal weights.
std::vector<int> equal_steps(const training& t) {
    std::vector<int> steps;
    for (std::size_t step = 0; step != t.masters[0].size(); ++step) {
        const bool first = t.masters[0][step] == t.masters[2][step];
        REQUIRE(first == (t.masters[1][step] == t.masters[3][step]));
        if (first) steps.push_back(static_cast<int>(step) + 1);
    }
    return steps;
}

}  // namespace

TEST_CASE("islands are equal after each exchange, in ZeRO-3 and in data parallelism", "[zero3_gpt]") {
    for (const int stage : {3, 0}) {
        CAPTURE(stage);
        const training t = train_islands(every_four(1, 0), stage, 1);
        CHECK(equal_steps(t) == std::vector{4, 8});
        CHECK(t.masters[0][3] != t.masters[0][7]);
        CHECK(t.result.traffic.exchange.inter_node > 0);
        CHECK(t.result.traffic.exchange.intra_node == 0);
    }
}

TEST_CASE("fragments exchange in turn, and are used after their delay", "[zero3_gpt]") {
    // Of 4 units in 2 fragments, units 0 and 2 begin after steps 2 and 6, units 1 and 3 after steps 4 and 8.
    CHECK(equal_steps(train_islands(every_four(2, 0), 3, 2)) == std::vector{2, 6});
    CHECK(equal_steps(train_islands(every_four(2, 0), 3, 3)) == std::vector{4, 8});
    CHECK(equal_steps(train_islands(every_four(2, 1), 3, 2)) == std::vector{3, 7});
    CHECK(equal_steps(train_islands(every_four(2, 3), 3, 3)) == std::vector{7});
}

TEST_CASE("one island takes the outer step alone, without an exchange", "[zero3_gpt]") {
    // In stage 0 every rank keeps whole weights, so the anchor is known.
    const training plain = train_islands(std::nullopt, 0, 1);
    local_settings one = every_four(1, 0);
    one.islands = 1;
    const training t = train_islands(one, 0, 1);
    CHECK(t.result.traffic.exchange.inter_node == 0);
    for (std::size_t step = 0; step != 3; ++step) CHECK(t.masters[0][step] == plain.masters[0][step]);
    const std::vector<float> anchor = initial_weights(1);
    double largest_error = 0, largest_move = 0;
    for (std::size_t i = 0; i != anchor.size(); ++i) {
        const double difference = double(anchor[i]) - double(plain.masters[0][3][i]);
        const double expected = anchor[i] - 0.7 * (difference + 0.9 * difference);
        largest_error = std::max(largest_error, std::abs(t.masters[0][3][i] - expected));
        largest_move = std::max(largest_move, std::abs(difference));
    }
    CHECK(largest_error < 1e-3 * largest_move);
}

TEST_CASE("under SGD, islands that average their weights after each step train as one world", "[zero3_gpt]") {
    // With a large epsilon, AdamW's step is linear in the gradients.
    const deepspeed_config::adamw_params sgd{.lr = 100, .eps = 1e3};
    local_settings average = every_four(1, 0);
    average.every = 1;
    average.learning_rate = 1;
    average.momentum = 0;
    const std::vector<float> islands = train_islands(average, 0, 1, 0, sgd).masters[0].back();
    const std::vector<float> world = train_islands(std::nullopt, 0, 1, 0, sgd).masters[0].back();
    const std::vector<float> initial = initial_weights(1);
    double largest_error = 0, largest_move = 0;
    for (std::size_t i = 0; i != initial.size(); ++i) {
        largest_error = std::max(largest_error, std::abs(double(islands[i]) - double(world[i])));
        largest_move = std::max(largest_move, std::abs(double(world[i]) - double(initial[i])));
    }
    // Error feedback leaves the rounding of the last exchange alone.
    CHECK(largest_error < 0.02 * largest_move);
}

TEST_CASE("the average of weights follows them after each step, and is evaluated", "[zero3_gpt]") {
    const training t = train_islands(every_four(1, 0), 0, 1, 0.75);
    std::vector<float> expected = initial_weights(1);
    for (std::size_t step = 0; step != t.averages[3].size(); ++step) {
        CAPTURE(step);
        double largest_error = 0;
        for (std::size_t i = 0; i != expected.size(); ++i) {
            expected[i] = 0.75F * expected[i] + 0.25F * t.masters[3][step][i];
            largest_error = std::max(largest_error, double(std::abs(t.averages[3][step][i] - expected[i])));
        }
        CHECK(largest_error < 1e-6);
    }
    for (const int stage : {3, 0}) {
        CAPTURE(stage);
        // An average that forgets at once is the weights; one that keeps all is the initial weights.
        const run_result at_once = train_islands(std::nullopt, stage, 1, 1e-9).result;
        REQUIRE(at_once.held_out_loss_of_average);
        CHECK(*at_once.held_out_loss_of_average == Approx(at_once.held_out_loss_of_masters).epsilon(1e-6));
        const run_result never = train_islands(std::nullopt, stage, 1, 1 - 1e-9).result;
        CHECK(*never.held_out_loss_of_average > never.held_out_loss_of_masters + 0.01);
    }
    CHECK_FALSE(train_islands(std::nullopt, 3, 1).result.held_out_loss_of_average);
}

TEST_CASE("the engine counts the memory of an outer step as it is planned", "[zero3_gpt]") {
    const std::size_t without = train_islands(std::nullopt, 0, 1).result.memory_bytes;
    local_settings one = every_four(1, 0);
    one.islands = 1;
    const std::size_t with = train_islands(one, 0, 1).result.memory_bytes;
    const model network(small);
    std::vector<std::size_t> tensors;
    for (int u = 0; u != network.units(); ++u) {
        for (const unit_tensor& t : network.tensors(u)) tensors.push_back(t.size);
    }
    using residuals = few_formats::residuals::storage<few_formats::int4_rotated>;
    CHECK(with - without == zeropp::outer_memory(zeropp::flat(1), tensors,
                                                 {.islands = 1,
                                                  .every = 4,
                                                  .differences = zeropp::wire_format_of(few_formats::int4_rotated{}),
                                                  .residuals = zeropp::wire_format_of(residuals{})}));
    // Weights, gradient, two moments.
    CHECK(without >= 16 * network.parameters());
}

TEST_CASE("ranks that islands do not divide are refused", "[zero3_gpt]") {
    local_settings local = every_four(1, 0);
    local.islands = 3;
    CHECK_THROWS_WITH(train_islands(local, 3, 1), "local_steps.islands: expected a divisor of the 4 ranks, given 3");
}
