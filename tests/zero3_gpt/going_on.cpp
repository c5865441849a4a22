/// \file
/// Ranks die in the middle of a step, and the others go on: with the weights of the last step to the bit.

#include "host_pass.hpp"
#include "short_work.hpp"
#include "support/catch.hpp"
#include "trainer.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace {

using namespace zero3_gpt;

struct setting {
    zeropp::two_level nodes;
    int stage = 3;
    int group = 2;  // ranks of a secondary partition
    bool differences = false;
    bool exact = false;
    int islands = 0;  // 0: no local steps
    int steps = 4;
    std::vector<planned_death> deaths{};
};

run_settings run_of(const setting& c) {
    run_settings run{"run", {}};
    run.config.bf16 = false;
    run.config.zero.stage = c.stage;
    run.config.zero.hpz_partition_size = c.group;
    run.config.zeropp.secondary_quantizer = "fp32";
    run.config.zeropp.weight_differences = c.differences;
    if (c.exact) {
        run.config.zero.quantized_weights = true;
        run.config.zeropp.weight_quantizer = "exact";
        run.config.zeropp.secondary_quantizer = "bf16";
    }
    if (c.islands != 0) run.config.zeropp.local_steps = local_settings{.islands = c.islands, .every = 1};
    run.config.zeropp.weight_average = 0.5;
    run.config.gradient_clipping = 1;
    run.config.optimizer.weight_decay = 0;
    return run;
}

/// Whole master weights of a unit, from its shards on ranks, in rank order.
std::vector<float> joined(const model& network, int unit, const std::vector<std::vector<float>>& shards) {
    std::vector<std::size_t> read(shards.size());
    std::vector<float> whole;
    for (const unit_tensor& t : network.tensors(unit)) {
        const zeropp::partition part(t.size, static_cast<int>(shards.size()));
        for (std::size_t r = 0; r != shards.size(); ++r) {
            const auto first = shards[r].begin() + static_cast<std::ptrdiff_t>(read[r]);
            const std::size_t n = part.size(static_cast<int>(r));
            whole.insert(whole.end(), first, first + static_cast<std::ptrdiff_t>(n));
            read[r] += n;
        }
    }
    return whole;
}

/// Trains with deaths, and returns the results of each rank; of dead ranks none. With `errors`, keeps the text of each
/// rank's error there, so that each rank can have one.
std::vector<std::vector<run_result>> results_with(const setting& c, std::vector<std::string>* errors = nullptr) {
    const workload work = short_work();
    settings s;
    s.steps = c.steps;
    s.timeout = std::chrono::seconds(1);
    s.deaths = c.deaths;
    s.runs = {run_of(c)};
    pin_blas_to_one_thread();
    std::vector<std::vector<run_result>> results(static_cast<std::size_t>(c.nodes.size()));
    results_on_threads(s, c.nodes, [&](zeropp::thread_transport ranks) {
        const host_device device;
        const auto rank = static_cast<std::size_t>(ranks.rank());
        auto& own = results[rank];
        try {
            own.push_back(train<few_formats>(device, s, s.runs[0], work, ranks, c.nodes, [](auto&, int, double) {}));
        } catch (const zeropp::error& e) {
            if (errors == nullptr) throw;
            (*errors)[rank] = e.what();
        }
        return own;
    });
    return results;
}

/// Masters by unit and rank, of the engines before and after ranks are lost, and steps taken by the survivors.
struct outcome {
    std::vector<std::vector<std::vector<float>>> before, after;
    std::vector<int> steps_before, steps;
    std::vector<std::string> lost_moments;
};

/// Loses rank 2 of 2 x 2, or `dead` of `nodes`, in the third step: after its forward pass or, if `at_end`, after the
/// optimizer's step, which the rank `misses` has not taken. The masters of rank 2 are from before that step: the
/// copies' are, too.
///
/// With a number of a moment, moments are mirrored, and this one is compared in place of the masters.
outcome lose_rank_2(bool differences, bool at_end, int misses, std::optional<std::size_t> moment = {},
                    const zeropp::two_level& nodes = zeropp::two_level(2, 2), const std::vector<int>& dead = {2}) {
    const workload work = short_work();
    const int units = work.network.units();
    const setting c{.nodes = nodes, .differences = differences};
    run_settings run = run_of(c);
    if (moment) run.config.zeropp.optimizer_mirror = {.every = 3, .quantizer = "fp32"};
    using engine_type = zero3_engine<host_device, zeropp::thread_transport, few_formats>;
    const std::vector<int> survivors = zeropp::detail::other_ranks(nodes.size(), dead);
    const std::size_t left = survivors.size();
    outcome all;
    all.before.resize(static_cast<std::size_t>(units),
                      std::vector<std::vector<float>>(static_cast<std::size_t>(nodes.size())));
    all.after.resize(static_cast<std::size_t>(units), std::vector<std::vector<float>>(left));
    all.steps_before.resize(left);
    all.steps.resize(left);
    all.lost_moments.resize(left);
    zeropp::run_on_threads(nodes.size(), [&](zeropp::thread_transport ranks) {
        const host_device device;
        engine_type::transport_type world(ranks, c.nodes);
        engine_type engine(device, work.network, run.config, 1, world, c.nodes);
        const int rank = world.rank();
        const auto keep = [&](const engine_type& of, int r, auto& masters) {
            for (int u = 0; u != units; ++u) {
                const zeropp::host_view<const float> own = moment ? of.moments(u)[*moment] : of.masters(u);
                masters[static_cast<std::size_t>(u)][static_cast<std::size_t>(r)].assign(own.data(),
                                                                                         own.data() + own.size());
            }
        };
        pass batch(device, work.network, 1);
        std::vector<std::uint8_t> tokens(8), targets(8);
        for (int step = 0; step != 3; ++step) {
            work.words.sample_batch(1, step, rank, 1, tokens, targets);
            batch.begin(tokens, targets);
            engine.begin(true);
            for (int u = 0; u != units; ++u) batch.forward(u, engine.next_weights());
            if (step == 2) keep(engine, rank, all.before);
            if (step == 2 && !at_end) break;
            for (int u = units - 1; u >= 0; --u) {
                const auto weights = engine.next_weights();
                batch.backward(u, weights, engine.gradient(u));
                engine.reduce(u);
            }
            const double norm = engine.gradient_norm();
            if (step != 2 || misses == 0 || rank != misses) engine.apply({1e-2, norm});
            if (moment) engine.mirror_moments();
        }
        engine.stop();
        if (std::ranges::find(dead, rank) != dead.end()) {
            if (moment) keep(engine, rank, all.before);
            world.split(std::vector<int>{rank});
            return;
        }
        auto next = world.split(survivors);
        const auto place = static_cast<std::size_t>(next.rank());
        all.steps_before[place] = engine.steps();
        engine_type after(device, work.network, run.config, 1, next, engine, survivors);
        all.steps[place] = after.steps();
        all.lost_moments[place] = after.lost_moments();
        // A step with its gradient clipped to zero moves weights by the moments, and lost shards not at all.
        for (engine_type* const e : {&engine, &after}) {
            if (!moment) e->apply({1e-2, std::numeric_limits<double>::infinity()});
        }
        keep(engine, rank, all.before);
        keep(after, next.rank(), all.after);
    });
    return all;
}

}  // namespace

TEST_CASE("an engine of the survivors has the masters of the last step to the bit, and their moments", "[zero3_gpt]") {
    const model network(small);
    for (const bool differences : {false, true}) {
        // Rank 2 is lost after a forward pass, or when all have taken the step; or rank 3 has missed that step.
        const outcome forward = lose_rank_2(differences, false, 0), all = lose_rank_2(differences, true, 0),
                      missed = lose_rank_2(differences, true, 3);
        CHECK(forward.steps == std::vector{2, 2, 2});
        CHECK(all.steps == std::vector{3, 3, 3});
        CHECK(missed.steps_before == std::vector{3, 3, 2});
        CHECK(missed.steps == std::vector{3, 3, 3});
        for (int u = 0; u != network.units(); ++u) {
            CAPTURE(differences, u);
            const auto unit = static_cast<std::size_t>(u);
            CHECK(joined(network, u, forward.before[unit]) == joined(network, u, forward.after[unit]));
            CHECK(joined(network, u, all.before[unit]) == joined(network, u, all.after[unit]));
            CHECK(joined(network, u, all.before[unit]) == joined(network, u, missed.after[unit]));
        }
    }
}

TEST_CASE("a copy whose first gather has failed is none", "[zero3_gpt]") {
    const workload work = short_work();
    const int units = work.network.units();
    using engine_type = zero3_engine<host_device, zeropp::thread_transport, few_formats>;
    const zeropp::two_level nodes(2, 2);
    // Exact differences fail in the second step, where a failure of their sizes leaves the copies of the first.
    for (const setting& c : {setting{.nodes = nodes}, setting{.nodes = nodes, .differences = true},
                             setting{.nodes = nodes, .differences = true, .exact = true}}) {
        CAPTURE(c.differences, c.exact);
        const run_settings run = run_of(c);
        std::vector<std::string> errors(4);
        zeropp::run_on_threads(4,
                               [&](zeropp::thread_transport ranks) {
                                   const host_device device;
                                   engine_type::transport_type world(ranks, c.nodes);
                                   engine_type engine(device, work.network, run.config, 1, world, c.nodes);
                                   const int rank = world.rank();
                                   pass batch(device, work.network, 1);
                                   std::vector<std::uint8_t> tokens(8), targets(8);
                                   work.words.sample_batch(1, 0, rank, 1, tokens, targets);
                                   batch.begin(tokens, targets);
                                   engine.begin(true);
                                   if (c.exact) {
                                       for (int u = 0; u != units; ++u) batch.forward(u, engine.next_weights());
                                       engine.apply({1e-2, std::numeric_limits<double>::infinity()});
                                       batch.begin(tokens, targets);
                                       engine.begin(true);
                                   }
                                   try {
                                       for (int u = 0; u != units; ++u) {
                                           // Without rank 2, the last unit is not gathered.
                                           if (rank == 2 && u == units - 2) return;
                                           batch.forward(u, engine.next_weights());
                                       }
                                   } catch (const zeropp::lost_rank_error&) {
                                   }
                                   engine.stop();
                                   auto left = world.shrink();
                                   try {
                                       const engine_type after(device, work.network, run.config, 1, left.next, engine,
                                                               left.survivors);
                                   } catch (const zeropp::precondition_error& e) {
                                       errors[static_cast<std::size_t>(rank)] = e.what();
                                   }
                               },
                               {.timeout = std::chrono::milliseconds(300)});
        for (const std::size_t r : {0u, 1u, 3u}) {
            if (c.exact) {
                CHECK(errors[r].empty());
            } else {
                CHECK_THAT(errors[r], Catch::Contains("given none, since all are empty"));
            }
        }
    }
}

TEST_CASE("a survivor whose copies have failed takes the step that it has missed", "[zero3_gpt]") {
    const workload work = short_work();
    const int units = work.network.units();
    using engine_type = zero3_engine<host_device, zeropp::thread_transport, few_formats>;
    const zeropp::two_level nodes(4, 1);
    run_settings run = run_of({.nodes = nodes});
    run.config.zeropp.optimizer_mirror = {.every = 1, .quantizer = "fp32"};
    std::vector<int> steps_before(4), steps(4);
    zeropp::run_on_threads(4,
                           [&](zeropp::thread_transport ranks) {
                               const host_device device;
                               engine_type::transport_type world(ranks, nodes);
                               engine_type engine(device, work.network, run.config, 1, world, nodes);
                               const int rank = world.rank();
                               pass batch(device, work.network, 1);
                               std::vector<std::uint8_t> tokens(8), targets(8);
                               try {
                                   for (int step = 0; step != 3; ++step) {
                                       work.words.sample_batch(1, step, rank, 1, tokens, targets);
                                       batch.begin(tokens, targets);
                                       engine.begin(true);
                                       for (int u = 0; u != units; ++u) batch.forward(u, engine.next_weights());
                                       for (int u = units - 1; u >= 0; --u) {
                                           const auto weights = engine.next_weights();
                                           batch.backward(u, weights, engine.gradient(u));
                                           engine.reduce(u);
                                       }
                                       const double norm = engine.gradient_norm();
                                       // Rank 3 dies before its first copies have reached rank 2.
                                       if (rank == 3 && step == 1) return;
                                       engine.apply({1e-2, norm});
                                       if (rank != 3) engine.mirror_moments();
                                   }
                               } catch (const zeropp::lost_rank_error&) {
                               }
                               engine.stop();
                               const auto r = static_cast<std::size_t>(rank);
                               steps_before[r] = engine.steps();
                               auto left = world.shrink();
                               const engine_type after(device, work.network, run.config, 1, left.next, engine,
                                                       left.survivors);
                               steps[r] = after.steps();
                           },
                           {.timeout = std::chrono::seconds(2)});
    CHECK(steps_before == std::vector{2, 2, 1, 0});
    CHECK(steps == std::vector{2, 2, 2, 0});
}

TEST_CASE("moments of a lost shard come from its mirror, to the bit", "[zero3_gpt]") {
    const model network(small);
    CHECK(lose_rank_2(false, true, 0).lost_moments ==
          std::vector<std::string>(3, "zeros, since no survivor has copies"));
    for (const std::size_t moment : {0u, 1u}) {
        const outcome mirrored = lose_rank_2(false, true, 0, moment);
        CHECK(mirrored.lost_moments == std::vector<std::string>(3, "copies on partner nodes"));
        for (int u = 0; u != network.units(); ++u) {
            CAPTURE(moment, u);
            const auto unit = static_cast<std::size_t>(u);
            CHECK(joined(network, u, mirrored.before[unit]) == joined(network, u, mirrored.after[unit]));
        }
    }
    // Ranks 0 and 2 of four nodes mirror each other.
    const outcome lost = lose_rank_2(false, true, 0, 0, zeropp::two_level(4, 2), {0, 2});
    CHECK(lost.lost_moments == std::vector<std::string>(6, "zeros, since no survivor has copies"));
}

TEST_CASE("one rank, a node, and two ranks die in the middle of a step, and the others finish", "[zero3_gpt]") {
    const zeropp::two_level three(3, 2);
    const std::vector<setting> cases{
        {.nodes = three, .deaths = {{1, 2}}},
        {.nodes = three, .deaths = {{0, 2}, {1, 2}}},
        {.nodes = three, .differences = true, .deaths = {{0, 2}, {3, 2}}},
        {.nodes = three, .differences = true, .exact = true, .deaths = {{0, 2}, {3, 2}}},
        {.nodes = three, .deaths = {{2, 2}, {5, 3}}},
        {.nodes = three, .stage = 0, .group = 1, .deaths = {{1, 2}}},
    };
    for (const setting& c : cases) {
        CAPTURE(c.stage, c.differences, c.exact, c.deaths.size(), c.deaths.back().rank);
        const auto results = results_with(c);
        for (std::size_t r = 0; r != results.size(); ++r) {
            CAPTURE(r);
            const bool died =
                std::ranges::any_of(c.deaths, [&](const planned_death& d) { return d.rank == static_cast<int>(r); });
            REQUIRE(results[r].empty() == died);
            if (died) continue;
            const run_result& result = results[r].front();
            CHECK(result.losses.size() == static_cast<std::size_t>(c.steps));
            CHECK(std::isfinite(result.held_out_loss_of_masters));
            CHECK(result.losses.back() < result.losses.front() + 0.1);
            REQUIRE(!result.recoveries.empty());
            CHECK(result.recoveries.front().step == 1);
            CHECK(result.recoveries.back().ranks == c.nodes.size() - static_cast<int>(c.deaths.size()));
            CHECK(result.recoveries.back().seconds > 0);
        }
    }
}

TEST_CASE("a rank that dies while the others go on is left out too", "[zero3_gpt]") {
    struct engine_double {
        void stop() {}
    };
    std::vector<std::vector<int>> left(6);
    std::vector<int> sizes(6);
    zeropp::run_on_threads(6,
                           [&](zeropp::thread_transport ranks) {
                               const int rank = ranks.rank();
                               if (rank == 1) return;
                               auto world = std::make_unique<zeropp::thread_transport>(ranks);
                               auto engine = std::make_unique<engine_double>();
                               const auto make = [&](zeropp::thread_transport& next, engine_double&,
                                                     const std::vector<int>& survivors) {
                                   if (rank == 4) throw rank_died();
                                   const std::byte sent{};
                                   std::vector<std::byte> received(static_cast<std::size_t>(next.size()));
                                   next.all_gather(zeropp::host{}, &sent, received.data(), 1);
                                   left[static_cast<std::size_t>(rank)] = survivors;
                                   return std::make_unique<engine_double>();
                               };
                               try {
                                   go_on(world, engine, make);
                                   sizes[static_cast<std::size_t>(rank)] = world->size();
                               } catch (const rank_died&) {
                               }
                           },
                           {.timeout = std::chrono::milliseconds(300)});
    const std::vector<int> survivors{0, 2, 3, 5}, none;
    CHECK(left == std::vector{survivors, none, survivors, survivors, none, survivors});
    CHECK(sizes == std::vector{4, 0, 4, 4, 0, 4});
}

TEST_CASE("a device makes exact differences of weights in 16 bits alone", "[zero3_gpt]") {
    run_settings run = run_of({.nodes = zeropp::two_level(2, 2), .differences = true, .exact = true});
    using engine_type = zero3_engine<host_device, zeropp::thread_transport, few_formats>;
    CHECK_NOTHROW(engine_type::difference_formats_of(run.config));
    run.config.zeropp.secondary_quantizer = "fp32";
    CHECK_THROWS_WITH(engine_type::difference_formats_of(run.config),
                      "weight_quantizer: expected differences that this device can make of weights kept in fp32, given "
                      "exact");
}

TEST_CASE("without copies of lost weights, no rank goes on, and all say so", "[zero3_gpt]") {
    std::vector<std::string> errors(4);
    const setting c{.nodes = zeropp::two_level(2, 2), .group = 1, .deaths = {{1, 2}}};
    CHECK_THROWS_WITH(results_with(c, &errors), "no rank is left");
    const std::string problem =
        "zero3_gpt: expected zero_hpz_partition_size above 1, to go on without a rank: no other rank holds its weights";
    CHECK(errors == std::vector<std::string>{problem, "", problem, problem});
}

TEST_CASE("with local steps, no rank goes on, and all say so", "[zero3_gpt]") {
    std::vector<std::string> errors(4);
    const setting c{.nodes = zeropp::two_level(2, 2), .islands = 2, .deaths = {{1, 2}}};
    CHECK_THROWS_WITH(results_with(c, &errors), "no rank is left");
    const std::string problem = "zero3_gpt: expected no local steps, to go on without a rank";
    CHECK(errors == std::vector<std::string>{problem, "", problem, problem});
}
