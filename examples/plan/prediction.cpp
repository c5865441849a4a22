#include "prediction.hpp"

#include <zeropp/topology/flat.hpp>

#include <utility>

namespace plan {

namespace {

zeropp::step_options options_of(const settings& s, const parts& of) {
    if (of.differences) {
        return {.weights = s.differences,
                .gradients_inside = s.gradients_inside,
                .gradients_across = s.difference_gradients,
                // What differences are added to is not quantized.
                .replicas = s.secondary.plain ? s.secondary : s.plain,
                .chunks = s.chunks,
                .gather_chunks = s.gather_chunks};
    }
    zeropp::step_options options{.weights = of.qwz ? s.weights : s.plain,
                                 .gradients_inside = of.qgz ? s.gradients_inside : s.plain_gradients,
                                 .gradients_across = of.qgz ? s.gradients_across : s.plain_gradients,
                                 .chunks = s.chunks,
                                 .gather_chunks = s.gather_chunks};
    if (of.hpz) options.secondary = zeropp::secondary_options{s.secondary_group_size, s.secondary};
    return options;
}

std::vector<layout> predict_layouts(const settings& s) {
    const int k = s.secondary_group_size;
    const std::string groups = " in groups of " + std::to_string(k);
    // Data parallel training keeps everything everywhere and reduces gradients where they are.
    std::vector<layout> all{{.name = "data parallel", .states = zeropp::memory_of_states(s.tensors, 1, s.bytes)}};
    all.push_back({.name = "MiCS-style" + groups,
                   .states = zeropp::memory_of_states(s.tensors, k, s.bytes),
                   .scratch = zeropp::scratch_memory(zeropp::flat(k), s.tensors, options_of(s, {}), s.bytes)});
    all.push_back(predict_layout(s, "zero3", {}));
    all.push_back(predict_layout(s, "hpz" + groups, {.hpz = true}));
    all.push_back(predict_layout(s, "zeropp" + groups, {.qwz = true, .hpz = true, .qgz = true}));
    all.push_back(predict_layout(s, "differences", {.differences = true}));
    return all;
}

/// Every group size up to a node's, and the multiples of it that divide the ranks, up to 8 nodes.
std::vector<secondary_choice> predict_choices(const settings& s) {
    std::vector<secondary_choice> choices;
    const int of_node = s.ranks.group_size();
    for (int k = 1; k <= s.ranks.size() && k <= 8 * of_node; ++k) {
        if (s.ranks.size() % k != 0 || (of_node % k != 0 && k % of_node != 0)) continue;
        settings at = s;
        at.secondary_group_size = k;
        const layout l = predict_layout(at, {}, {.qwz = true, .hpz = true, .qgz = true});
        const run r = predict_run(at, {}, {.qwz = true, .hpz = true, .qgz = true});
        choices.push_back({k, l.secondary, l.total(), r.sent.backward, r.time.without_overlap()});
    }
    return choices;
}

}  // namespace

run predict_run(const settings& s, std::string name, const parts& of) {
    const zeropp::step_options options = options_of(s, of);
    return {std::move(name), options, zeropp::volume_of_step(s.ranks, s.tensors, options),
            zeropp::time_of_step(s.speed, s.ranks, s.tensors, options, s.compute, s.bytes.parameter)};
}

layout predict_layout(const settings& s, std::string name, const parts& of) {
    const zeropp::step_options options = options_of(s, of);
    layout l{.name = std::move(name), .states = zeropp::memory_of_states(s.tensors, s.ranks.size(), s.bytes)};
    if (options.secondary) l.secondary = zeropp::secondary_memory(s.tensors, *options.secondary);
    if (options.replicas) l.secondary = zeropp::replica_memory(s.ranks, s.tensors, *options.replicas);
    const auto& residuals = of.differences ? s.difference_residuals : s.residuals;
    if ((of.qgz || of.differences) && residuals) {
        l.residuals = zeropp::residuals_memory(s.ranks, s.tensors, residuals->inside, residuals->across);
    }
    l.scratch = zeropp::scratch_memory(s.ranks, s.tensors, options, s.bytes);
    return l;
}

std::vector<run> predict_runs(const settings& s) {
    return {predict_run(s, "zero3", {}),
            predict_run(s, "qwz", {.qwz = true}),
            predict_run(s, "hpz", {.hpz = true}),
            predict_run(s, "qgz", {.qgz = true}),
            predict_run(s, "qwz+qgz", {.qwz = true, .qgz = true}),
            predict_run(s, "zeropp", {.qwz = true, .hpz = true, .qgz = true}),
            predict_run(s, "differences", {.differences = true})};
}

prediction predict(const settings& s) { return {predict_runs(s), predict_layouts(s), predict_choices(s)}; }

}  // namespace plan
