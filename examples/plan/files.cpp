#include "files.hpp"

#include "advice.hpp"
#include "report.hpp"

#include <nlohmann/json.hpp>

#include <cmath>
#include <fstream>
#include <iomanip>
#include <stdexcept>

namespace plan {

namespace {

std::ofstream open(const std::string& file) {
    std::ofstream out(file);
    if (!out) throw std::runtime_error("cannot write " + file);
    return out;
}

void close(std::ofstream& out, const std::string& file) {
    out.close();
    if (!out) throw std::runtime_error("could not write all of " + file);
}

nlohmann::ordered_json json_of(const zeropp::volume& v) {
    return {{"intra_node", v.intra_node}, {"inter_node", v.inter_node}, {"inter_site", v.inter_site}};
}

nlohmann::ordered_json json_of(const zeropp::step_volume& v) {
    return {{"forward", json_of(v.forward)},
            {"backward", json_of(v.backward)},
            {"gradients", json_of(v.gradients)},
            {"total", json_of(v.total())}};
}

nlohmann::ordered_json json_of_group(int size) {
    if (size == zeropp::whole_nodes) return "whole nodes";
    return size;
}

/// Ranks on each node: one number if all have the same, otherwise a list.
nlohmann::ordered_json ranks_per_node(const zeropp::two_level& ranks) {
    if (has_equal_groups(ranks)) return ranks.group_size(0);
    nlohmann::ordered_json sizes;
    for (int g = 0; g != ranks.groups(); ++g) sizes.push_back(ranks.group_size(g));
    return sizes;
}

nlohmann::ordered_json json_of(const zeropp::collective_time& t) {
    return {{"intra_node", t.intra_node},
            {"inter_node", t.inter_node},
            {"inter_site", t.inter_site},
            {"codec", t.codec},
            {"total", t.total()}};
}

}  // namespace

void write_json(const settings& s, const prediction& p) {
    nlohmann::ordered_json json{
        {"parameters", s.elements()}, {"tensors", s.tensors.size()},
        {"nodes", s.ranks.groups()},  {"ranks_per_node", ranks_per_node(s.ranks)},
        {"sites", s.sites},           {"secondary_group", json_of_group(s.secondary_group_size)},
        {"chunks", s.chunks},         {"gather_chunks", s.gather_chunks}};
    json["formats"] = {{"plain", s.plain.name.str()},
                       {"weights", s.weights.name.str()},
                       {"gradients_intra_node", s.gradients.intra_node.name.str()},
                       {"gradients_inter_node", s.gradients.inter_node.name.str()},
                       {"gradients_inter_site", s.gradients.at(2).name.str()},
                       {"secondary", s.secondary.name.str()},
                       {"differences", s.differences.name.str()},
                       {"difference_gradients", s.difference_gradients.name.str()}};
    if (s.by_layer) {
        json["embeddings"] = s.by_layer->embeddings;
        json["formats"]["by_layer_differences"] = s.by_layer->differences.name.str();
        json["formats"]["by_layer_block_gradients"] = s.by_layer->block_gradients.name.str();
        json["formats"]["by_layer_embedding_gradients"] = s.by_layer->embedding_gradients.name.str();
    }
    json["speed"] = {{"intra_node_bytes_per_second", s.speed.intra_node.bytes_per_second},
                     {"intra_node_latency_seconds", s.speed.intra_node.latency_seconds},
                     {"inter_node_bytes_per_second", s.speed.inter_node.bytes_per_second},
                     {"inter_node_latency_seconds", s.speed.inter_node.latency_seconds},
                     {"inter_site_bytes_per_second", s.speed.inter_site.bytes_per_second},
                     {"inter_site_latency_seconds", s.speed.inter_site.latency_seconds},
                     {"codec_bytes_per_second", s.speed.codec_bytes_per_second}};
    json["compute_seconds"] = {{"forward", s.compute.forward}, {"backward", s.compute.backward}};
    const auto before = static_cast<double>(p.runs.front().by_node.total().inter_node);
    for (const run& r : p.runs) {
        nlohmann::ordered_json entry{{"name", r.name},
                                     {"bytes_by_rank", json_of(r.sent)},
                                     {"bytes_by_node", json_of(r.by_node)},
                                     {"bytes_by_all", json_of(r.by_all)}};
        const auto now = static_cast<double>(r.by_node.total().inter_node);
        if (now > 0) entry["reduction_inter_node"] = before / now;
        if (before > 0) entry["inter_node_savings_percent"] = (before - now) / before * 100;
        entry["seconds"] = {{"forward", json_of(r.time.forward)},
                            {"backward", json_of(r.time.backward)},
                            {"gradients", json_of(r.time.gradients)},
                            {"communication", r.time.communication()},
                            {"step_without_overlap", r.time.without_overlap()},
                            {"step_with_overlap", r.time.with_overlap()}};
        json["runs"].push_back(std::move(entry));
    }
    for (const layout& l : p.layouts) {
        nlohmann::ordered_json entry{{"name", l.name},
                                     {"parameters", l.states.parameters},
                                     {"gradients", l.states.gradients},
                                     {"optimizer", l.states.optimizer},
                                     {"secondary", l.secondary},
                                     {"residuals", l.residuals},
                                     {"scratch", l.scratch},
                                     {"total", l.total()}};
        if (s.memory > 0) entry["fits"] = fits(s, l.total());
        json["memory_by_rank"].push_back(std::move(entry));
    }
    for (const secondary_choice& c : p.choices) {
        nlohmann::ordered_json entry{{"group", json_of_group(c.group_size)},
                                     {"partition_bytes", c.memory},
                                     {"total_bytes", c.total_memory},
                                     {"backward_by_rank", json_of(c.sent)},
                                     {"step_without_overlap_seconds", c.seconds}};
        if (s.memory > 0) entry["fits"] = fits(s, c.total_memory);
        json["secondary_groups"].push_back(std::move(entry));
    }
    for (const local_run& r : p.local_runs) {
        json["local_steps"].push_back({{"name", r.name},
                                       {"exchange_bytes_by_island", r.exchange},
                                       {"bits_per_parameter_and_step", r.bits},
                                       {"exchange_seconds", r.exchange_seconds},
                                       {"inner_step_seconds", r.inner_seconds},
                                       {"step_seconds", r.step_seconds},
                                       {"outer_bytes_by_rank", r.outer_memory},
                                       {"total_bytes_by_rank", r.total_memory}});
    }
    if (p.mirrors) {
        json["mirrors"] = {{"format", p.mirrors->how.format.name.str()},
                           {"every", p.mirrors->how.every},
                           {"bytes_by_rank", json_of(p.mirrors->sent)},
                           {"memory_by_rank", p.mirrors->memory}};
    }
    json["advice"] = advise(s, p);
    std::ofstream out = open(s.json_file);
    out << json.dump(2) << '\n';
    close(out, s.json_file);
}

void write_sweep(const settings& s) {
    std::ofstream out = open(s.sweep_file);
    out << "# Speed-up over ZeRO-3 against the rate of a node's link. Drawn by: gnuplot " << s.sweep_file << "\n"
        << "$speedup << EOD\nGbit/s";
    const std::vector<run> names = predict_runs(s);
    for (std::size_t r = 1; r != names.size(); ++r) out << ' ' << names[r].name;
    out << " \"zeropp, overlapped\"\n" << std::fixed;
    settings at = s;
    // From 10 Gbit/s to 3.2 Tbit/s, six steps for each factor of ten.
    for (int step = 0; step <= 15; ++step) {
        const double gbit = 10 * std::pow(10.0, step / 6.0);
        at.speed.inter_node.bytes_per_second = gbit * 1e9 / 8;
        const std::vector<run> runs = predict_runs(at);
        const zeropp::step_time& before = runs.front().time;
        out << std::setprecision(2) << gbit << std::setprecision(4);
        for (std::size_t r = 1; r != runs.size(); ++r) {
            out << ' ' << before.without_overlap() / runs[r].time.without_overlap();
        }
        out << ' ' << before.with_overlap() / all_of_zeropp(runs).time.with_overlap() << '\n';
    }
    std::string image;  // gnuplot doubles the quotes of a quoted text
    for (const char c : s.sweep_file) image.append(c == '\'' ? 2 : 1, c);
    out << "EOD\n"
        << "set terminal pngcairo size 960,600\n"
        << "set output '" << image << ".png'\n"
        << "set title '" << fixed(static_cast<double>(s.elements()) / 1e9, 1) << " billion parameters on "
        << nodes_text(s.ranks) << ", " << fixed((s.compute.forward + s.compute.backward) * 1e3, 0)
        << " ms of computation' noenhanced\n"
        << "set xlabel 'link of a node, Gbit/s'\nset ylabel 'speed-up over ZeRO-3'\n"
        << "set logscale x\nset grid\nset key autotitle columnhead noenhanced\n"
        << "plot for [c = 2:" << names.size() << "] $speedup using 1:c with linespoints linewidth 1.5, \\\n"
        << "     $speedup using 1:" << names.size() + 1 << " with lines linewidth 1.5 dashtype 2\n";
    close(out, s.sweep_file);
}

}  // namespace plan
