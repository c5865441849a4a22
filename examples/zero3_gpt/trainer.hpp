#pragma once

#include "engine.hpp"
#include "pass.hpp"
#include "report.hpp"
#include "settings.hpp"
#include "text.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <iomanip>
#include <iostream>
#include <iterator>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace zero3_gpt {

/// Network and text, which every rank prepares from equal input before ranks communicate.
struct workload {
    /// Throws if a setting or a quantizer's name is wrong.
    explicit workload(const settings& s)
        : network(s.network, s.weights),
          words(s.text_file.empty() ? read_licences() : read_text(s.text_file), s.network.context, s.held_out_windows) {
        for (const run_settings& run : s.runs) {
            const deepspeed_config::zeropp_settings& names = run.config.zeropp;
            if (names.weight_differences) {
                differences_of<wire_formats>::parse(names.weight_quantizer);
            } else {
                wire_formats::weights::parse(names.weight_quantizer);
            }
            for (const bool embedding : {false, true}) {
                wire_formats::gradients::parse(names.gradient_quantizer_intra_node,
                                               names.gradients_inter_node(embedding),
                                               names.gradients_inter_site(embedding));
            }
            wire_formats::weights::parse(names.secondary_quantizer);
            if (names.local_steps) wire_formats::exchanges::parse(names.local_steps->quantizer);
            if (names.optimizer_mirror) wire_formats::replicas::parse(names.optimizer_mirror->quantizer);
        }
    }

    workload(model m, text t) : network(std::move(m)), words(std::move(t)) {}

    model network;
    text words;
};

/// Mean loss over all held-out text, with the weights that the ranks gather.
template <class Device, class Transport, class Formats>
double held_out_loss(zero3_engine<Device, Transport, Formats>& engine, const workload& work, pass<Device>& batch,
                     int rank, int ranks, int windows) {
    const auto room = static_cast<std::size_t>(windows) * static_cast<std::size_t>(work.network.config().context);
    std::vector<std::uint8_t> tokens(room);
    std::vector<std::uint8_t> targets(room);
    double sum = 0;
    const int rounds = work.words.held_out_rounds(ranks, windows);
    for (int round = 0; round != rounds; ++round) {
        const int mine = work.words.held_out_batch(round, rank, ranks, windows, tokens, targets);
        const auto used = static_cast<std::size_t>(mine) * static_cast<std::size_t>(work.network.config().context);
        batch.begin(std::span(tokens).first(used), std::span(targets).first(used));
        engine.begin(false);
        for (int u = 0; u != work.network.units(); ++u) batch.forward(u, engine.next_weights());
        sum += static_cast<double>(batch.loss()) * mine;
    }
    return engine.sum_over_ranks(sum) / static_cast<double>(work.words.held_out_windows());
}

/// Prints ten lines for each run, with the time left for all runs at the pace so far.
class progress {
public:
    explicit progress(const settings& s)
        : steps_(s.steps), steps_of_all_runs_(s.steps * static_cast<int>(s.runs.size())) {}

    /// Call after each step; `step` is counted from 0.
    void operator()(const std::string& run, int step, double loss) {
        ++steps_done_;
        if (step != 0 && (step + 1) % std::max(1, steps_ / 10) != 0) return;
        const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start_;
        const double left = passed.count() * (steps_of_all_runs_ - steps_done_) / steps_done_;
        std::cout << run << ": step " << step + 1 << " of " << steps_ << ", loss " << std::fixed << std::setprecision(3)
                  << loss << ", " << static_cast<int>(left) / 60 << " min " << static_cast<int>(left) % 60 << " s left"
                  << std::endl;
    }

private:
    std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
    int steps_;
    int steps_of_all_runs_;
    int steps_done_ = 0;
};

/// Replaces a world and its engine after a failure: make(world, engine, survivors) makes the survivors' engine from the
/// old one. If another rank dies meanwhile, begins again without it. Returns the old engine. Collective over the
/// survivors.
template <class World, class Engine, class Make>
std::unique_ptr<Engine> go_on(std::unique_ptr<World>& world, std::unique_ptr<Engine>& engine, Make make) {
    engine->stop();
    zeropp::shrunk<World> left = world->shrink();
    std::vector<int> survivors = left.survivors;
    auto next_world = std::make_unique<World>(std::move(left.next));
    for (;;) {
        try {
            auto next = make(*next_world, *engine, survivors);
            world = std::move(next_world);
            return std::exchange(engine, std::move(next));
        } catch (const zeropp::lost_rank_error&) {
            zeropp::shrunk<World> fewer = next_world->shrink();
            for (int& r : fewer.survivors) r = survivors[static_cast<std::size_t>(r)];
            survivors = std::move(fewer.survivors);
            next_world = std::make_unique<World>(std::move(fewer.next));
        }
    }
}

/// Trains one configuration from the seed's weights. Calls each(engine, step, loss) after every optimizer step; `loss`
/// is the mean over ranks. With a timeout, survivors of a failure go on. Collective.
template <class Formats, class Device, class Transport, class Each>
run_result train(const Device& device, const settings& s, const run_settings& run, const workload& work,
                 Transport transport, const zeropp::three_level& nodes, Each each) {
    using clock = std::chrono::steady_clock;
    using engine_type = zero3_engine<Device, Transport, Formats>;
    using world_type = typename engine_type::transport_type;
    auto world = std::make_unique<world_type>(std::move(transport), nodes);
    auto engine = std::make_unique<engine_type>(device, work.network, run.config, s.seed, *world, nodes);
    const int first_rank = world->rank();
    const int windows = run.config.train_micro_batch_size_per_gpu;
    const auto room = static_cast<std::size_t>(windows) * static_cast<std::size_t>(work.network.config().context);
    std::vector<std::uint8_t> tokens(room);
    std::vector<std::uint8_t> targets(room);
    pass batch(device, work.network, windows);
    const learning_rate_schedule rate{.peak = run.config.optimizer.lr,
                                      .floor = run.config.optimizer.lr * s.final_rate,
                                      .warmup_steps = s.warmup_steps,
                                      .total_steps = s.steps};

    const int dump_step = s.dump_step == 0 ? s.steps : s.dump_step;

    run_result result;
    result.name = run.name;
    std::vector<double> seconds;
    const auto take_step = [&](int step) {
        const auto start = clock::now();
        const int rank = world->rank();
        const bool dumps = rank == 0 && !s.dump_folder.empty();
        const bool dies = std::ranges::any_of(
            s.deaths, [&](const planned_death& d) { return d.rank == first_rank && d.step == step + 1; });
        work.words.sample_batch(s.seed, step, rank, windows, tokens, targets);
        batch.begin(tokens, targets);
        engine->begin(true);
        for (int u = 0; u != work.network.units(); ++u) batch.forward(u, engine->next_weights());
        const double loss = static_cast<double>(batch.loss());
        for (int u = work.network.units() - 1; u >= 0; --u) {
            const auto weights = engine->next_weights();
            const auto gradient = engine->gradient(u);
            batch.backward(u, weights, gradient);
            if (dumps && step + 1 == dump_step) {
                const auto dump = [&](const char* what, const float* numbers) {
                    std::vector<float> here(weights.size());
                    device.download(std::span(here), numbers);
                    write_dump(s.dump_folder, run.name, u, what, here);
                };
                dump("weights", weights.data());
                dump("gradients", gradient.data());
            }
            if (dies && u == work.network.units() / 2) s.die();
            engine->reduce(u);
        }
        // Before the step: a rank that has taken a step has its loss.
        result.losses.push_back(engine->sum_over_ranks(loss) / world->size());
        engine->step(rate.at(step));
        seconds.push_back(std::chrono::duration<double>(clock::now() - start).count());
        each(*engine, step, result.losses.back());
    };
    clock::time_point failed{};
    // Until the training ends: MPI may still use the memory of operations that have failed.
    std::vector<std::unique_ptr<engine_type>> ended;
    const auto recover = [&](const std::exception& e, clock::time_point start) {
        const int ranks = world->size();
        ended.push_back(
            go_on(world, engine, [&](world_type& next, engine_type& before, const std::vector<int>& survivors) {
                return std::make_unique<engine_type>(device, work.network, run.config, s.seed, next, before, survivors);
            }));
        if (result.recoveries.empty() || result.recoveries.back().seconds > 0) failed = start;
        result.losses.resize(static_cast<std::size_t>(engine->steps()));
        result.recoveries.push_back({engine->steps(), world->size(), 0});
        if (world->rank() == 0) {
            std::cout << run.name << ": " << e.what() << '\n'
                      << run.name << ": " << world->size() << " of " << ranks << " ranks go on from step "
                      << engine->steps() + 1 << std::endl;
            if (!engine->lost_moments().empty()) {
                std::cout << run.name << ": moments of lost shards are " << engine->lost_moments() << std::endl;
            }
        }
    };
    while (engine->steps() != s.steps) {
        const auto start = clock::now();
        try {
            take_step(engine->steps());
        } catch (const zeropp::lost_rank_error& e) {
            if (s.timeout.count() == 0) throw;
            recover(e, start);
            continue;
        }
        if (result.recoveries.empty() || result.recoveries.back().seconds > 0) continue;
        const double passed = std::chrono::duration<double>(clock::now() - failed).count();
        result.recoveries.back().seconds = passed;
        if (world->rank() == 0) {
            std::cout << run.name << ": finished a step " << std::fixed << std::setprecision(2) << passed
                      << " s after the start of the one that failed" << std::endl;
        }
    }

    const int ranks = world->size();
    const int rank = world->rank();
    const auto per_step = [&](const zeropp::volume& mine) -> zeropp::volume {
        const auto total = [&](std::uint64_t bytes) {
            return static_cast<std::uint64_t>(engine->sum_over_ranks(static_cast<double>(bytes))) /
                   static_cast<std::uint64_t>(s.steps);
        };
        return {total(mine.intra_node), total(mine.inter_node), total(mine.inter_site)};
    };
    const phase_traffic mine = engine->traffic();
    result.traffic.forward_gather = per_step(mine.forward_gather);
    result.traffic.backward_gather = per_step(mine.backward_gather);
    result.traffic.reduce = per_step(mine.reduce);
    result.traffic.exchange = per_step(mine.exchange);
    result.traffic.mirror = per_step(mine.mirror);
    // A single step's loss depends on its batch, so the last 20 are averaged.
    const auto last = std::min<std::size_t>(result.losses.size(), 20);
    for (std::size_t i = result.losses.size() - last; i != result.losses.size(); ++i) {
        result.training_loss += result.losses[i] / static_cast<double>(last);
    }
    // One step of an interval has the exchange: a median of single steps would leave it out.
    const auto& local = run.config.zeropp.local_steps;
    const auto interval = std::min<std::ptrdiff_t>(local ? local->every : 1, std::ssize(seconds));
    std::vector<double> means;
    for (auto at = seconds.begin(); seconds.end() - at >= interval; at += interval) {
        means.push_back(std::accumulate(at, at + interval, 0.0) / static_cast<double>(interval));
    }
    std::nth_element(means.begin(), means.begin() + static_cast<std::ptrdiff_t>(means.size() / 2), means.end());
    result.step_seconds = means[means.size() / 2];
    result.held_out_loss = held_out_loss(*engine, work, batch, rank, ranks, windows);
    engine->use(weights_kind::masters);
    result.held_out_loss_of_masters = held_out_loss(*engine, work, batch, rank, ranks, windows);
    if (run.config.zeropp.weight_average > 0) {
        engine->use(weights_kind::average);
        result.held_out_loss_of_average = held_out_loss(*engine, work, batch, rank, ranks, windows);
    }
    result.memory_bytes = engine->memory_bytes();
    result.of_first_rank = rank == 0;
    return result;
}

/// Trains every configuration in turn. Returns results on the first rank that is left, and none on others. Collective.
template <class Formats = wire_formats, class Device, class Transport>
std::vector<run_result> train_all(const Device& device, const settings& s, const workload& work, Transport transport,
                                  const zeropp::three_level& nodes) {
    for (const run_settings& run : s.runs) {
        if (run.config.zeropp.weight_differences) {
            static_cast<void>(zero3_engine<Device, Transport, Formats>::difference_formats_of(run.config));
        }
    }
    std::vector<int> everyone;
    for (int r = 0; r != transport.size(); ++r) everyone.push_back(r);
    if (transport.rank() == 0) {
        for (const run_settings& run : s.runs) {
            for (const std::string& warning : run.config.warnings) std::cerr << "warning: " << warning << '\n';
        }
    }
    progress print_progress(s);
    std::vector<run_result> results;
    for (const run_settings& run : s.runs) {
        const auto print = [&](const auto& engine, int step, double loss) {
            if (engine.rank() == 0) print_progress(run.name, step, loss);
        };
        results.push_back(train<Formats>(device, s, run, work, transport.split(everyone), nodes, print));
    }
    if (!results.back().of_first_rank) results.clear();
    return results;
}

/// Runs train(transport), a train_all, on threads. Returns the results of the first rank that is left.
template <class Train>
std::vector<run_result> results_on_threads(const settings& s, const zeropp::three_level& nodes, Train train) {
    std::vector<std::vector<run_result>> of_ranks(static_cast<std::size_t>(nodes.size()));
    zeropp::run_on_threads(nodes.size(),
                           [&](zeropp::thread_transport ranks) {
                               try {
                                   of_ranks[static_cast<std::size_t>(ranks.rank())] = train(ranks);
                               } catch (const rank_died&) {
                               }
                           },
                           {.timeout = s.timeout});
    const auto first = std::ranges::find_if(of_ranks, [](const auto& results) { return !results.empty(); });
    if (first == of_ranks.end()) throw zeropp::error("no rank is left");
    return *first;
}

/// Trains every configuration in turn, with ranks that are threads, each with its own device.
template <class Device, class Formats = wire_formats>
std::vector<run_result> train_on_threads(const settings& s, const workload& work, const zeropp::three_level& nodes) {
    return results_on_threads(s, nodes, [&](zeropp::thread_transport ranks) {
        const Device device = Device::of(s);
        return train_all<Formats>(device, s, work, ranks, nodes);
    });
}

/// Prints the table and writes the files.
inline void report(const settings& s, const workload& work, const zeropp::three_level& nodes,
                   std::span<const run_result> results) {
    const report_header header{work.network.parameters(), nodes.extent(2), nodes.extent(1),
                               nodes.group_size(0),       s.steps,         s.seed};
    std::cout << '\n';
    print_table(std::cout, header, results);
    if (!s.json_file.empty()) write_json(s.json_file, header, results);
    if (!s.curve_file.empty()) write_curve(s.curve_file, results);
}

}  // namespace zero3_gpt
