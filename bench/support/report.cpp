#include "support/report.hpp"

#include <cmath>
#include <cstdio>
#include <fstream>
#include <stdexcept>

namespace zeropp_bench {

std::string cell(double number, int decimals) {
    if (std::isnan(number)) return "N/A";
    char text[64];
    std::snprintf(text, sizeof text, "%.*f", decimals, number);
    return text;
}

nlohmann::ordered_json json_number(double number) {
    return std::isfinite(number) ? nlohmann::ordered_json(number) : nlohmann::ordered_json(nullptr);
}

void report::fact(const std::string& key, const nlohmann::ordered_json& value) {
    if (!speaks_) return;
    json_[key] = value;
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

void report::row(const std::vector<std::string>& cells, nlohmann::ordered_json json) {
    if (!speaks_) return;
    std::string line = " ";
    for (std::size_t c = 0; c != cells.size(); ++c) {
        char text[128];
        std::snprintf(text, sizeof text, " %*s", columns_[c].width, cells[c].c_str());
        line += text;
    }
    std::printf("%s\n", line.c_str());
    std::fflush(stdout);
    json_["rows"].push_back(std::move(json));
}

void report::write(const std::string& path) const {
    if (!speaks_ || path.empty()) return;
    std::ofstream file(path);
    file << json_.dump(1) << '\n';
    file.close();
    if (!file) throw std::runtime_error("cannot write " + path);
}

}  // namespace zeropp_bench
