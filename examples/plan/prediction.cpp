#include "prediction.hpp"

#include <zeropp/topology/flat.hpp>

namespace plan {

namespace {

zeropp::step_options options_of(const settings& s, bool qwz, bool hpz, bool qgz) {
    zeropp::step_options options{.weights = qwz ? s.weights : s.plain,
                                 .gradients_inside = qgz ? s.gradients_inside : s.plain,
                                 .gradients_across = qgz ? s.gradients_across : s.plain,
                                 .chunks = s.chunks,
                                 .gather_chunks = s.gather_chunks};
    if (hpz) options.secondary = zeropp::secondary_options{s.secondary_group_size, s.secondary};
    return options;
}

run run_of(const settings& s, std::string name, const zeropp::step_options& options) {
    return {std::move(name), options, zeropp::volume_of_step(s.ranks, s.tensors, options),
            zeropp::time_of_step(s.speed, s.ranks, s.tensors, options, s.compute, s.bytes.parameter)};
}

/// ZeRO-3 with what these options add, error feedback included if asked for.
layout layout_of(const settings& s, std::string name, const zeropp::step_options& options, bool feedback) {
    layout l{.name = std::move(name), .states = zeropp::memory_of_states(s.tensors, s.ranks.size(), s.bytes)};
    if (options.secondary) l.secondary = zeropp::secondary_memory(s.tensors, *options.secondary);
    if (feedback && s.residuals) {
        l.residuals = zeropp::residuals_memory(s.ranks, s.tensors, s.residuals->inside, s.residuals->across);
    }
    l.scratch = zeropp::scratch_memory(s.ranks, s.tensors, options, s.bytes);
    return l;
}

std::vector<layout> predict_layouts(const settings& s) {
    const zeropp::step_options zero3 = options_of(s, false, false, false);
    const int k = s.secondary_group_size;
    const std::string groups = " in groups of " + std::to_string(k);
    // Data parallel training keeps everything everywhere and reduces gradients where they are.
    std::vector<layout> all{{.name = "data parallel", .states = zeropp::memory_of_states(s.tensors, 1, s.bytes)}};
    all.push_back({.name = "MiCS-style" + groups,
                   .states = zeropp::memory_of_states(s.tensors, k, s.bytes),
                   .scratch = zeropp::scratch_memory(zeropp::flat(k), s.tensors, zero3, s.bytes)});
    all.push_back(layout_of(s, "zero3", zero3, false));
    all.push_back(layout_of(s, "hpz" + groups, options_of(s, false, true, false), false));
    all.push_back(layout_of(s, "zeropp" + groups, options_of(s, true, true, true), true));
    return all;
}

/// Every group size up to a node's, and the multiples of it that divide the ranks, up to 8 nodes.
std::vector<secondary_choice> predict_choices(const settings& s) {
    std::vector<secondary_choice> choices;
    const int of_node = s.ranks.group_size();
    for (int k = 1; k <= s.ranks.size() && k <= 8 * of_node; ++k) {
        if (s.ranks.size() % k != 0 || (of_node % k != 0 && k % of_node != 0)) continue;
        zeropp::step_options options = options_of(s, true, true, true);
        options.secondary->group_size = k;
        const run r = run_of(s, {}, options);
        choices.push_back({k, zeropp::secondary_memory(s.tensors, *options.secondary),
                           layout_of(s, {}, options, true).total(), r.sent.backward, r.time.without_overlap()});
    }
    return choices;
}

}  // namespace

std::vector<run> predict_runs(const settings& s) {
    return {
        run_of(s, "zero3", options_of(s, false, false, false)), run_of(s, "qwz", options_of(s, true, false, false)),
        run_of(s, "hpz", options_of(s, false, true, false)),    run_of(s, "qgz", options_of(s, false, false, true)),
        run_of(s, "qwz+qgz", options_of(s, true, false, true)), run_of(s, "zeropp", options_of(s, true, true, true))};
}

prediction predict(const settings& s) { return {predict_runs(s), predict_layouts(s), predict_choices(s)}; }

}  // namespace plan
