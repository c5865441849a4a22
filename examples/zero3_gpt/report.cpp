#include "report.hpp"

#include <nlohmann/json.hpp>

#include <filesystem>
#include <fstream>
#include <iomanip>
#include <limits>
#include <ostream>
#include <stdexcept>
#include <utility>

namespace zero3_gpt {

namespace {

/// `before` / `now` as text; "all" if `now` is 0, "-" if both are.
std::string reduction(std::uint64_t before, std::uint64_t now) {
    if (now == 0) return before == 0 ? "-" : "all";
    std::ostringstream text;
    text << std::fixed << std::setprecision(2) << static_cast<double>(before) / static_cast<double>(now) << "x";
    return text.str();
}

double kilobytes(std::uint64_t bytes) { return static_cast<double>(bytes) / 1000.0; }

std::ofstream open(const std::string& file, std::ios::openmode mode = std::ios::out) {
    std::ofstream out(file, mode);
    if (!out) throw std::runtime_error("cannot write " + file);
    return out;
}

void close(std::ofstream& out, const std::string& file) {
    out.close();
    if (!out) throw std::runtime_error("could not write all of " + file);
}

}  // namespace

void print_table(std::ostream& out, const report_header& header, std::span<const run_result> runs) {
    const bool sites = header.sites != 1;
    // Bytes over the slowest links, which columns of phases have.
    const auto slowest = [&](const zeropp::volume& v) { return sites ? v.inter_site : v.inter_node; };
    out << header.parameters << " parameters on ";
    if (sites) out << header.sites << " sites x ";
    out << header.nodes_per_site << " nodes x " << header.ranks_per_node << " ranks, " << header.steps
        << " steps, seed " << header.seed << "; kB sent per step by all ranks together\n\n";
    constexpr int wide = 15;
    const auto cell = [&](const auto& content) { out << std::setw(wide) << content; };
    out << std::left << std::setw(12) << "run" << std::right;
    cell("training loss");
    cell("held-out loss");
    if (sites) cell("across sites");
    for (const char* column :
         {"across nodes", "forward", "backward", "gradients", "reduction", "inside nodes", "step, ms"}) {
        cell(column);
    }
    out << '\n' << std::fixed;
    for (const run_result& r : runs) {
        out << std::left << std::setw(12) << r.name << std::right << std::setprecision(4);
        cell(r.training_loss);
        cell(r.held_out_loss);
        out << std::setprecision(1);
        if (sites) cell(kilobytes(r.inter_site_bytes()));
        cell(kilobytes(r.inter_node_bytes()));
        for (const zeropp::volume* const phase :
             {&r.traffic.forward_gather, &r.traffic.backward_gather, &r.traffic.reduce}) {
            cell(kilobytes(slowest(*phase)));
        }
        cell(reduction(slowest(runs.front().traffic.total()), slowest(r.traffic.total())));
        cell(kilobytes(r.intra_node_bytes()));
        cell(r.step_seconds * 1e3);
        out << '\n';
    }
}

void write_json(const std::string& file, const report_header& header, std::span<const run_result> runs) {
    nlohmann::ordered_json facts{{"parameters", header.parameters},
                                 {"nodes", header.sites * header.nodes_per_site},
                                 {"ranks_per_node", header.ranks_per_node},
                                 {"steps", header.steps},
                                 {"seed", header.seed}};
    if (header.sites != 1) facts["sites"] = header.sites;
    // Each fact and each run has a line, so that a diff of two files shows which differ.
    std::ofstream out = open(file);
    out << "{\n";
    for (const auto& [key, value] : facts.items()) out << " \"" << key << "\": " << value << ",\n";
    out << " \"runs\": [\n";
    const auto phase = [&](const zeropp::volume& v) {
        nlohmann::ordered_json bytes{{"intra_node", v.intra_node}, {"inter_node", v.inter_node}};
        if (header.sites != 1) bytes["inter_site"] = v.inter_site;
        return bytes;
    };
    for (const run_result& r : runs) {
        const double inter_node = static_cast<double>(r.inter_node_bytes());
        nlohmann::ordered_json run{{"name", r.name},
                                   {"training_loss", r.training_loss},
                                   {"held_out_loss", r.held_out_loss},
                                   {"held_out_loss_of_masters", r.held_out_loss_of_masters},
                                   {"step_seconds_median", r.step_seconds},
                                   {"inter_node_bytes_per_step", r.inter_node_bytes()},
                                   {"intra_node_bytes_per_step", r.intra_node_bytes()}};
        if (header.sites != 1) run["inter_site_bytes_per_step"] = r.inter_site_bytes();
        run["memory_bytes_of_rank"] = r.memory_bytes;
        if (r.held_out_loss_of_average) run["held_out_loss_of_average"] = *r.held_out_loss_of_average;
        if (r.inter_node_bytes() != 0) {
            run["reduction_inter_node"] = static_cast<double>(runs.front().inter_node_bytes()) / inter_node;
        }
        run["forward_gather"] = phase(r.traffic.forward_gather);
        run["backward_gather"] = phase(r.traffic.backward_gather);
        run["reduce"] = phase(r.traffic.reduce);
        for (const auto& [name, bytes] :
             {std::pair("exchange", r.traffic.exchange), std::pair("mirror", r.traffic.mirror)}) {
            if (bytes != zeropp::volume()) run[name] = phase(bytes);
        }
        for (const recovery& f : r.recoveries) run["recoveries"].push_back({{"step", f.step}, {"ranks", f.ranks}});
        out << "  " << run << (&r == &runs.back() ? "\n" : ",\n");
    }
    out << " ]\n}\n";
    close(out, file);
}

void write_curve(const std::string& file, std::span<const run_result> runs) {
    std::ofstream out = open(file);
    // All digits, so that equal curves mean equal runs.
    out << std::setprecision(std::numeric_limits<double>::max_digits10) << "step";
    for (const run_result& r : runs) out << ' ' << r.name;
    out << '\n';
    for (std::size_t s = 0; s != runs.front().losses.size(); ++s) {
        out << s + 1;
        for (const run_result& r : runs) out << ' ' << r.losses[s];
        out << '\n';
    }
    close(out, file);
}

void write_dump(const std::string& folder, const std::string& run, int unit, const std::string& what,
                std::span<const float> numbers) {
    std::filesystem::create_directories(folder);
    const std::string name = run + "." + std::to_string(unit) + "." + what + ".fp32";
    const std::string file = (std::filesystem::path(folder) / name).string();
    std::ofstream out = open(file, std::ios::binary);
    out.write(reinterpret_cast<const char*>(numbers.data()), static_cast<std::streamsize>(numbers.size_bytes()));
    close(out, file);
}

}  // namespace zero3_gpt
