#include "prediction.hpp"

#include <zeropp/core/error.hpp>
#include <zeropp/topology/flat.hpp>

#include <algorithm>
#include <map>
#include <span>
#include <utility>

namespace plan {

namespace {

/// Tensors that move in the same formats.
struct tensor_group {
    std::span<const std::size_t> tensors;
    zeropp::step_options options;
    std::optional<zeropp::level_formats> residuals;
};

zeropp::step_options with_differences(const settings& s, const zeropp::wire_format& differences,
                                      const zeropp::wire_format& gradients) {
    return {.weights = differences,
            .gradients = {s.gradients.intra_node, gradients, s.gradients.inter_site},
            // Differences are added to replicas that are not quantized.
            .replicas = s.secondary.plain ? s.secondary : s.plain,
            .chunks = s.chunks,
            .gather_chunks = s.gather_chunks};
}

std::vector<tensor_group> groups_of(const settings& s, const parts& of) {
    const std::span all(s.tensors);
    if (of.by_layer) {
        if (!s.by_layer) throw zeropp::precondition_error("precision by layer", "which tensors are embeddings", "none");
        const by_layer_formats& by = *s.by_layer;
        return {
            {all.first(by.embeddings), with_differences(s, by.differences, by.embedding_gradients),
             by.embedding_residuals},
            {all.subspan(by.embeddings), with_differences(s, by.differences, by.block_gradients), by.block_residuals}};
    }
    if (of.differences) {
        return {{all, with_differences(s, s.differences, s.difference_gradients), s.difference_residuals}};
    }
    zeropp::step_options options{.weights = of.qwz ? s.weights : s.plain,
                                 .gradients =
                                     of.qgz ? s.gradients : zeropp::level_formats{s.plain_gradients, s.plain_gradients},
                                 .chunks = s.chunks,
                                 .gather_chunks = s.gather_chunks};
    if (of.hpz) options.secondary = zeropp::secondary_options{s.secondary_group_size, s.secondary};
    return {{all, options, of.qgz ? s.residuals : std::nullopt}};
}

/// Number of ranks in the secondary group that holds the most on each.
int smallest_group(const settings& s) {
    if (s.secondary_group_size != zeropp::whole_nodes) return s.secondary_group_size;
    int smallest = s.ranks.group_size(0);
    for (int g = 1; g != s.ranks.groups(); ++g) smallest = std::min(smallest, s.ranks.group_size(g));
    return smallest;
}

zeropp::step_volume operator*(const zeropp::step_volume& v, std::uint64_t times) {
    return {v.forward * times, v.backward * times, v.gradients * times};
}

zeropp::step_volume& operator+=(zeropp::step_volume& sum, const zeropp::step_volume& v) {
    sum.forward += v.forward;
    sum.backward += v.backward;
    sum.gradients += v.gradients;
    return sum;
}

/// Raises each number of `most` to that of `v`.
void take_larger(zeropp::step_volume& most, const zeropp::step_volume& v) {
    for (auto part : {&zeropp::step_volume::forward, &zeropp::step_volume::backward, &zeropp::step_volume::gradients}) {
        (most.*part).intra_node = std::max((most.*part).intra_node, (v.*part).intra_node);
        (most.*part).inter_node = std::max((most.*part).inter_node, (v.*part).inter_node);
        (most.*part).inter_site = std::max((most.*part).inter_site, (v.*part).inter_site);
    }
}

/// Adds the bytes of a step to `r`: the largest of a rank and of a node, and the sum over all. Ranks of nodes of one
/// size that serve the same number of columns send the same.
template <class Topology>
void add_sent(run& r, const Topology& topology, const tensor_group& g) {
    std::map<int, std::uint64_t> nodes_of_size;
    std::map<int, int> node_of_size;
    for (int node = 0; node != topology.groups(); ++node) {
        ++nodes_of_size[topology.group_size(node)];
        node_of_size.emplace(topology.group_size(node), node);
    }
    zeropp::step_volume by_rank, by_node;
    for (const auto& [size, nodes] : nodes_of_size) {
        const int node = node_of_size[size];
        std::map<int, std::pair<int, std::uint64_t>> ranks_by_columns;  // a rank, and the number of these
        for (int i = 0; i != size; ++i) {
            const int columns = zeropp::served_by(topology, topology.rank_of(node, i)).size();
            ++ranks_by_columns.try_emplace(columns, topology.rank_of(node, i), 0).first->second.second;
        }
        zeropp::step_volume of_node;
        for (const auto& [columns, ranks] : ranks_by_columns) {
            const zeropp::step_volume sent = zeropp::volume_of_step(topology, g.tensors, g.options, ranks.first);
            take_larger(by_rank, sent);
            of_node += sent * ranks.second;
        }
        take_larger(by_node, of_node);
        r.by_all += of_node * nodes;
    }
    r.sent += by_rank;
    r.by_node += by_node;
}

double code_bits(const zeropp::step_options& options) {
    const bool backward = !options.secondary && !options.replicas;
    return options.weights.code_bits * (backward ? 2 : 1) + options.gradients.inter_node.code_bits;
}

std::vector<layout> predict_layouts(const settings& s) {
    const int k = smallest_group(s);
    const std::string groups = " in groups of " + group_text(s.secondary_group_size);
    // Data-parallel training keeps all states on every rank and reduces gradients in place.
    std::vector<layout> all{{.name = "data parallel", .states = zeropp::memory_of_states(s.tensors, 1, s.bytes)}};
    all.push_back(
        {.name = "MiCS-style" + groups,
         .states = zeropp::memory_of_states(s.tensors, k, s.bytes),
         .scratch = zeropp::scratch_memory(zeropp::flat(k), s.tensors, groups_of(s, {}).front().options, s.bytes)});
    all.push_back(predict_layout(s, "zero3", {}));
    all.push_back(predict_layout(s, "hpz" + groups, {.hpz = true}));
    all.push_back(predict_layout(s, "zeropp" + groups, {.qwz = true, .hpz = true, .qgz = true}));
    all.push_back(predict_layout(s, "differences", {.differences = true}));
    if (s.by_layer) all.push_back(predict_layout(s, "by_layer", {.by_layer = true}));
    return all;
}

/// Whole nodes if they differ in size. Otherwise the possible group sizes up to 8 nodes.
std::vector<secondary_choice> predict_choices(const settings& s) {
    std::vector<int> sizes;
    if (!has_equal_groups(s.ranks)) sizes.push_back(zeropp::whole_nodes);
    for (int k = 1; k <= s.ranks.size() && k <= 8 * s.ranks.group_size(0); ++k) {
        if (s.on_topology([&](const auto& ranks) { return can_be_secondary_groups(ranks, k); })) sizes.push_back(k);
    }
    std::vector<secondary_choice> choices;
    for (const int k : sizes) {
        settings at = s;
        at.secondary_group_size = k;
        const layout l = predict_layout(at, {}, {.qwz = true, .hpz = true, .qgz = true});
        const run r = predict_run(at, {}, {.qwz = true, .hpz = true, .qgz = true});
        choices.push_back({k, l.secondary, l.total(), r.sent.backward, r.time.without_overlap()});
    }
    return choices;
}

}  // namespace

std::string group_text(int group_size) {
    return group_size == zeropp::whole_nodes ? "whole nodes" : std::to_string(group_size);
}

run predict_run(const settings& s, std::string name, const parts& of) {
    run r;
    r.name = std::move(name);
    r.time.compute = s.compute;
    for (const tensor_group& g : groups_of(s, of)) {
        const auto elements = std::accumulate(g.tensors.begin(), g.tensors.end(), std::uint64_t{0});
        r.code_bits += code_bits(g.options) * static_cast<double>(elements) / static_cast<double>(s.elements());
        const zeropp::step_time time = s.on_topology([&](const auto& topology) {
            add_sent(r, topology, g);
            return zeropp::time_of_step(s.speed, topology, g.tensors, g.options, s.compute, s.bytes.parameter);
        });
        r.time.forward += time.forward;
        r.time.backward += time.backward;
        r.time.gradients += time.gradients;
    }
    return r;
}

layout predict_layout(const settings& s, std::string name, const parts& of) {
    layout l{.name = std::move(name), .states = zeropp::memory_of_states(s.tensors, s.ranks.size(), s.bytes)};
    for (const tensor_group& g : groups_of(s, of)) {
        if (g.options.secondary) {
            l.secondary += zeropp::secondary_memory(g.tensors, {smallest_group(s), g.options.secondary->stored_as});
        }
        s.on_topology([&](const auto& topology) {
            if (g.options.replicas) l.secondary += zeropp::replica_memory(topology, g.tensors, *g.options.replicas);
            if (g.residuals) l.residuals += zeropp::residuals_memory(topology, g.tensors, *g.residuals);
            // One scratch serves all tensors and formats.
            l.scratch = std::max(l.scratch, zeropp::scratch_memory(topology, s.tensors, g.options, s.bytes));
        });
    }
    return l;
}

std::vector<run> predict_runs(const settings& s) {
    std::vector<run> runs{predict_run(s, "zero3", {}),
                          predict_run(s, "qwz", {.qwz = true}),
                          predict_run(s, "hpz", {.hpz = true}),
                          predict_run(s, "qgz", {.qgz = true}),
                          predict_run(s, "qwz+qgz", {.qwz = true, .qgz = true}),
                          predict_run(s, "zeropp", {.qwz = true, .hpz = true, .qgz = true}),
                          predict_run(s, "differences", {.differences = true})};
    if (s.by_layer) runs.push_back(predict_run(s, "by_layer", {.by_layer = true}));
    return runs;
}

std::vector<local_run> predict_local_runs(const settings& s) {
    std::vector<local_run> runs;
    if (!s.islands) return runs;
    const zeropp::local_steps& local = s.islands->local;
    settings island = s;
    island.ranks = zeropp::two_level(s.ranks.groups() / local.islands, s.ranks.group_size(0));
    std::uint64_t sent = 0;
    for (const std::size_t n : s.tensors) sent += zeropp::outer_step_volume(island.ranks, local, n);
    sent *= static_cast<std::uint64_t>(island.ranks.size());
    const zeropp::collective_time exchange =
        zeropp::outer_step_time(s.speed, s.islands->between, island.ranks, s.tensors, local);
    const std::uint64_t outer = zeropp::outer_memory(island.ranks, s.tensors, local);
    const auto add = [&](const char* name, const parts& of) {
        const double inner = predict_run(island, {}, of).time.without_overlap();
        runs.push_back({.name = name,
                        .exchange = sent,
                        .bits = 8.0 * static_cast<double>(sent) / local.every / static_cast<double>(s.elements()),
                        .exchange_seconds = exchange.total(),
                        .inner_seconds = inner,
                        .step_seconds = inner + zeropp::local_steps_seconds(exchange, local, inner),
                        .outer_memory = outer,
                        .total_memory = predict_layout(island, {}, of).total() + outer});
    };
    add("zero3 in islands", {});
    add("zeropp in islands", {.qwz = true, .hpz = true, .qgz = true});
    add("differences in islands", {.differences = true});
    return runs;
}

std::optional<mirror_cost> predict_mirrors(const settings& s) {
    if (!s.mirrors) return std::nullopt;
    const zeropp::wire_format& format = s.mirrors->format;
    // A rank that sends the most bytes of one tensor does so for all of them.
    int most = 0;
    std::uint64_t largest = 0;
    for (int node = 0; node != s.ranks.groups(); ++node) {
        const int rank = s.ranks.rank_of(node, s.ranks.group_size(node) - 1);
        const auto sent = zeropp::mirror_volume(s.ranks, std::span(s.tensors).first(1), format, rank).inter_node;
        if (sent > largest) {
            largest = sent;
            most = rank;
        }
    }
    constexpr std::uint64_t moments = 2;
    const zeropp::volume sent = zeropp::mirror_volume(s.ranks, s.tensors, format, most);
    return mirror_cost{.how = *s.mirrors,
                       .sent = sent * moments,
                       .memory = zeropp::mirror_memory(s.ranks, s.tensors, format) * moments};
}

prediction predict(const settings& s) {
    return {predict_runs(s), predict_layouts(s), predict_choices(s), predict_local_runs(s), predict_mirrors(s)};
}

}  // namespace plan
