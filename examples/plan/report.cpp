#include "report.hpp"

#include "advice.hpp"

#include <nlohmann/json.hpp>

#include <cmath>
#include <fstream>
#include <iomanip>
#include <ostream>
#include <stdexcept>

namespace plan {

namespace {

constexpr int wide = 12;
constexpr int name_wide = 27;

double of(std::uint64_t bytes) { return static_cast<double>(bytes); }

void head(std::ostream& out, const std::string& first, std::initializer_list<const char*> columns) {
    out << std::left << std::setw(name_wide) << first << std::right;
    for (const char* column : columns) out << std::setw(wide) << column;
    out << '\n';
}

void row(std::ostream& out, const std::string& first, const std::vector<std::string>& cells) {
    out << std::left << std::setw(name_wide) << first << std::right;
    for (const std::string& cell : cells) out << std::setw(wide) << cell;
    out << '\n';
}

std::string gb(double bytes) { return fixed(bytes / 1e9, 3); }

/// A factor in words: how many times less `now` is than `before`.
std::string times_less(double before, double now) {
    if (now <= 0) return before <= 0 ? "-" : "all";
    return fixed(before / now, 2) + "x";
}

std::string percent_less(double before, double now) {
    return before <= 0 ? "-" : fixed((before - now) / before * 100, 1) + " %";
}

/// What the sources count: bits of codes alone, of infinitely many nodes, in times of the model's 16-bit size M.
double in_codes(const run& r) {
    const double backward = r.options.secondary ? 0.0 : r.options.weights.code_bits;
    return (r.options.weights.code_bits + backward + r.options.gradients_across.code_bits) / 16.0;
}

void print_bytes(std::ostream& out, const settings& s, const std::vector<run>& runs) {
    const auto per_node = static_cast<std::uint64_t>(s.ranks.group_size());
    const auto all = static_cast<std::uint64_t>(s.ranks.size());
    const double m = 2.0 * of(s.elements());
    out << "GB sent in a step; M = " << gb(m) << " GB, the parameters in 16 bits\n\n";
    head(out, "across nodes, by a node",
         {"forward", "backward", "gradients", "total", "in M", "codes, M", "reduction", "savings"});
    const double before = of(runs.front().sent.total().across);
    for (const run& r : runs) {
        const zeropp::volume total = r.sent.total();
        row(out, r.name,
            {gb(of((r.sent.forward * per_node).across)), gb(of((r.sent.backward * per_node).across)),
             gb(of((r.sent.gradients * per_node).across)), gb(of((total * per_node).across)),
             fixed(of((total * per_node).across) / m, 3), s.ranks.groups() > 1 ? fixed(in_codes(r), 3) : "-",
             times_less(before, of(total.across)), percent_less(before, of(total.across))});
    }
    out << '\n';
    head(out, "inside nodes, by a rank", {"forward", "backward", "gradients", "total", "reduction"});
    for (const run& r : runs) {
        row(out, r.name,
            {gb(of(r.sent.forward.inside)), gb(of(r.sent.backward.inside)), gb(of(r.sent.gradients.inside)),
             gb(of(r.sent.total().inside)),
             times_less(of(runs.front().sent.total().inside), of(r.sent.total().inside))});
    }
    out << '\n';
    head(out, "in all", {"rank across", "node across", "all across", "node inside", "all inside"});
    for (const run& r : runs) {
        const zeropp::volume total = r.sent.total();
        row(out, r.name,
            {gb(of(total.across)), gb(of((total * per_node).across)), gb(of((total * all).across)),
             gb(of((total * per_node).inside)), gb(of((total * all).inside))});
    }
}

void print_times(std::ostream& out, const std::vector<run>& runs) {
    const zeropp::step_time& before = runs.front().time;
    const auto ms = [](double seconds) { return fixed(seconds * 1e3, 1); };
    head(out, "ms", {"forward", "backward", "gradients", "all of it", "step", "speed-up", "overlapped", "speed-up"});
    for (const run& r : runs) {
        row(out, r.name,
            {ms(r.time.forward.total()), ms(r.time.backward.total()), ms(r.time.gradients.total()),
             ms(r.time.communication()), ms(r.time.without_overlap()),
             times_less(before.without_overlap(), r.time.without_overlap()), ms(r.time.with_overlap()),
             times_less(before.with_overlap(), r.time.with_overlap())});
    }
}

void print_memory(std::ostream& out, const settings& s, const std::vector<layout>& layouts) {
    head(out, "GB on each rank",
         {"parameters", "gradients", "optimizer", "secondary", "residuals", "states", "scratch", "total", "fits"});
    for (const layout& l : layouts) {
        row(out, l.name,
            {fixed(of(l.states.parameters) / 1e9, 2), fixed(of(l.states.gradients) / 1e9, 2),
             fixed(of(l.states.optimizer) / 1e9, 2), fixed(of(l.secondary) / 1e9, 2), fixed(of(l.residuals) / 1e9, 2),
             fixed(of(l.total() - l.scratch) / 1e9, 2), fixed(of(l.scratch) / 1e9, 2), fixed(of(l.total()) / 1e9, 2),
             s.memory > 0 ? (fits(s, l.total()) ? "yes" : "no") : "-"});
    }
}

std::ofstream open(const std::string& file) {
    std::ofstream out(file);
    if (!out) throw std::runtime_error("cannot write " + file);
    return out;
}

void close(std::ofstream& out, const std::string& file) {
    out.close();
    if (!out) throw std::runtime_error("could not write all of " + file);
}

nlohmann::ordered_json json_of(const zeropp::volume& v) { return {{"inside", v.inside}, {"across", v.across}}; }

nlohmann::ordered_json json_of(const zeropp::step_volume& v, std::uint64_t times) {
    return {{"forward", json_of(v.forward * times)},
            {"backward", json_of(v.backward * times)},
            {"gradients", json_of(v.gradients * times)},
            {"total", json_of(v.total() * times)}};
}

nlohmann::ordered_json json_of(const zeropp::collective_time& t) {
    return {{"inside", t.inside}, {"across", t.across}, {"codec", t.codec}, {"total", t.total()}};
}

}  // namespace

void print_report(std::ostream& out, const settings& s, const prediction& p) {
    out << s.elements() << " parameters in " << s.tensors.size() << " tensors on " << s.ranks.groups() << " nodes x "
        << s.ranks.group_size() << " ranks\n"
        << "zero3 sends " << s.plain.name.str() << "; qwz weights in " << s.weights.name.str() << "; qgz gradients in "
        << s.gradients_inside.name.str() << " inside and " << s.gradients_across.name.str() << " across, in "
        << s.chunks << (s.chunks == 1 ? " chunk" : " chunks") << "; hpz keeps weights in " << s.secondary.name.str()
        << " in groups of " << s.secondary_group_size << "\n"
        << "a rank " << s.speed.inside.bytes_per_second * 8e-9 << " Gbit/s and " << s.speed.inside.latency_seconds * 1e6
        << " us inside, a node " << s.speed.across.bytes_per_second * 8e-9 << " Gbit/s and "
        << s.speed.across.latency_seconds * 1e6 << " us across, a codec " << s.speed.codec_bytes_per_second * 1e-9
        << " GB/s, " << (s.compute.forward + s.compute.backward) * 1e3 << " ms of computation\n\n";
    print_bytes(out, s, p.runs);
    out << '\n';
    print_times(out, p.runs);
    out << '\n';
    print_memory(out, s, p.layouts);
    out << '\n';
    for (const std::string& advice : advise(s, p)) out << "- " << advice << '\n';
}

void write_json(const settings& s, const prediction& p) {
    nlohmann::ordered_json json{{"parameters", s.elements()},
                                {"tensors", s.tensors.size()},
                                {"nodes", s.ranks.groups()},
                                {"ranks_per_node", s.ranks.group_size()},
                                {"secondary_group", s.secondary_group_size},
                                {"chunks", s.chunks},
                                {"gather_chunks", s.gather_chunks}};
    json["formats"] = {{"plain", s.plain.name.str()},
                       {"weights", s.weights.name.str()},
                       {"gradients_inside", s.gradients_inside.name.str()},
                       {"gradients_across", s.gradients_across.name.str()},
                       {"secondary", s.secondary.name.str()}};
    json["speed"] = {{"inside_bytes_per_second", s.speed.inside.bytes_per_second},
                     {"inside_latency_seconds", s.speed.inside.latency_seconds},
                     {"across_bytes_per_second", s.speed.across.bytes_per_second},
                     {"across_latency_seconds", s.speed.across.latency_seconds},
                     {"codec_bytes_per_second", s.speed.codec_bytes_per_second}};
    json["compute_seconds"] = {{"forward", s.compute.forward}, {"backward", s.compute.backward}};
    const double before = of(p.runs.front().sent.total().across);
    for (const run& r : p.runs) {
        nlohmann::ordered_json entry{
            {"name", r.name},
            {"bytes_by_rank", json_of(r.sent, 1)},
            {"bytes_by_node", json_of(r.sent, static_cast<std::uint64_t>(s.ranks.group_size()))},
            {"bytes_by_all", json_of(r.sent, static_cast<std::uint64_t>(s.ranks.size()))}};
        const double now = of(r.sent.total().across);
        if (now > 0) entry["reduction_across"] = before / now;
        if (before > 0) entry["savings_across_percent"] = (before - now) / before * 100;
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
        nlohmann::ordered_json entry{{"group", c.group_size},
                                     {"partition_bytes", c.memory},
                                     {"total_bytes", c.total_memory},
                                     {"backward_by_rank", json_of(c.sent)},
                                     {"step_without_overlap_seconds", c.seconds}};
        if (s.memory > 0) entry["fits"] = fits(s, c.total_memory);
        json["secondary_groups"].push_back(std::move(entry));
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
    // From 10 Gbit/s to 3.2 Tbit/s, six to a factor of ten.
    for (int step = 0; step <= 15; ++step) {
        const double gbit = 10 * std::pow(10.0, step / 6.0);
        at.speed.across.bytes_per_second = gbit * 1e9 / 8;
        const std::vector<run> runs = predict_runs(at);
        const zeropp::step_time& before = runs.front().time;
        out << std::setprecision(2) << gbit << std::setprecision(4);
        for (std::size_t r = 1; r != runs.size(); ++r) {
            out << ' ' << before.without_overlap() / runs[r].time.without_overlap();
        }
        out << ' ' << before.with_overlap() / runs.back().time.with_overlap() << '\n';
    }
    out << "EOD\n"
        << "set terminal pngcairo size 960,600\n"
        << "set output '" << s.sweep_file << ".png'\n"
        << "set title '" << fixed(of(s.elements()) / 1e9, 1) << " billion parameters on " << s.ranks.groups()
        << " nodes x " << s.ranks.group_size() << " ranks, " << fixed((s.compute.forward + s.compute.backward) * 1e3, 0)
        << " ms of computation' noenhanced\n"
        << "set xlabel 'link of a node, Gbit/s'\nset ylabel 'speed-up over ZeRO-3'\n"
        << "set logscale x\nset grid\nset key autotitle columnhead noenhanced\n"
        << "plot for [c = 2:" << names.size() << "] $speedup using 1:c with linespoints linewidth 1.5, \\\n"
        << "     $speedup using 1:" << names.size() + 1 << " with lines linewidth 1.5 dashtype 2\n";
    close(out, s.sweep_file);
}

}  // namespace plan
