#include "support/report.hpp"

#include "support/json_file.hpp"

#include <zeropp/version.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace zeropp_bench {

std::string cell(double number, int decimals) {
    if (std::isnan(number)) return "N/A";
    char text[64];
    std::snprintf(text, sizeof text, "%.*f", decimals, number);
    return text;
}

std::string cell(const nlohmann::ordered_json& row, const column& column) {
    const nlohmann::ordered_json::json_pointer at(column.value);
    if (!row.contains(at)) return "N/A";
    const nlohmann::ordered_json& value = row.at(at);
    if (value.is_null()) return column.null;
    if (value.is_string()) return value.get<std::string>();
    if (value.is_number_integer()) return value.dump();
    return cell(value.get<double>(), column.decimals);
}

nlohmann::ordered_json json_number(double number) {
    return std::isfinite(number) ? nlohmann::ordered_json(number) : nlohmann::ordered_json(nullptr);
}

void add_check(nlohmann::ordered_json& form, const std::optional<tally>& check) {
    form["wrong"] = check ? nlohmann::ordered_json(check->wrong) : nlohmann::ordered_json(nullptr);
    if (check && !std::isnan(check->sqnr_db())) form["sqnr_db"] = json_number(check->sqnr_db());
}

void report::fact(const std::string& key, const nlohmann::ordered_json& value) {
    if (!speaks_) return;
    facts_[key] = value;
    const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
    std::printf("# %-20s %s\n", key.c_str(), text.c_str());
}

void report::comment(const std::string& text) {
    if (!speaks_) return;
    std::printf("# %s\n", text.c_str());
    std::fflush(stdout);
}

void report::heading() {
    if (!speaks_) return;
    std::string groups = "#";
    std::string names = "#";
    std::string units = "#";
    for (std::size_t c = 0; c != columns_.size();) {
        std::size_t span = 0;
        std::size_t width = 0;
        for (; c + span != columns_.size() && columns_[c + span].group == columns_[c].group; ++span) {
            width += static_cast<std::size_t>(columns_[c + span].width) + 1;
        }
        std::string group = columns_[c].group;
        const std::size_t left = group.empty() ? 0 : (width - std::min(width, group.size())) / 2;
        group = std::string(left, ' ') + group;
        group.resize(std::max(width, group.size()), ' ');
        groups += group;
        c += span;
    }
    for (const column& c : columns_) {
        char text[128];
        std::snprintf(text, sizeof text, " %*s", c.width, c.name.c_str());
        names += text;
        std::snprintf(text, sizeof text, " %*s", c.width, c.unit.c_str());
        units += text;
    }
    std::printf("#\n%s\n%s\n%s\n", groups.c_str(), names.c_str(), units.c_str());
    std::fflush(stdout);
}

void report::row(nlohmann::ordered_json row) {
    if (!speaks_) return;
    std::string line = " ";
    for (const column& c : columns_) {
        char text[128];
        std::snprintf(text, sizeof text, " %*s", c.width, cell(row, c).c_str());
        line += text;
    }
    std::printf("%s\n", line.c_str());
    std::fflush(stdout);
    rows_.push_back(std::move(row));
}

void report::write(const std::string& path) const {
    if (!speaks_ || path.empty()) return;
    nlohmann::ordered_json all = facts_;
    all["rows"] = rows_;
    write_json(path, all);
}

void describe_program(report& r, const program_facts& program, const options& o) {
    r.fact("program", program.name);
    r.fact("version", std::to_string(zeropp::version_major) + "." + std::to_string(zeropp::version_minor) + "." +
                          std::to_string(zeropp::version_patch));
    r.fact("iterations", o.iterations);
    r.fact("warmup_iterations", o.warmup_iterations);
}

void describe_program(report& r, const program_facts& program, const options& o, const rank_context& ranks) {
    describe_program(r, program, o);
    r.fact("transport", ranks.transport_name());
    r.fact("ranks", ranks.size());
    r.fact("nodes", ranks.nodes().groups());
    r.fact("ranks_per_node", ranks.nodes().group_size(0));
    if (program.has_chunks) r.fact("chunks", o.chunks);
}

int finish_report(report& r, const options& o, std::uint64_t wrong) {
    const std::string verdict = o.checks == 0 ? " (nothing was checked)" : wrong == 0 ? " OK" : " FAILED";
    r.comment("Out of bounds values : " + std::to_string(wrong) + verdict);
    r.write(o.output_file);
    return wrong == 0 ? 0 : 1;
}

}  // namespace zeropp_bench
