#pragma once
/// \file
/// JSON files with one record a line, so that a new measurement changes few lines and a diff shows which.
/// bench/results_json.py writes the same form from Python.

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstddef>
#include <fstream>
#include <stdexcept>
#include <string>

namespace zeropp_bench {

/// JSON text of `value`, `depth` containers deep. An element of an array is a record, on one line. A container that
/// holds other containers has a line for each member; any other container shares its key's line.
template <class Json>
std::string json_text(const Json& value, std::size_t depth = 0) {
    const bool nested = std::any_of(value.begin(), value.end(), [](const Json& m) { return m.is_structured(); });
    if (!value.is_structured() || value.empty() || (depth > 0 && !nested)) return value.dump();
    const std::string margin = '\n' + std::string(depth, ' ');
    std::string lines;
    for (const auto& [key, member] : value.items()) {
        lines += (lines.empty() ? "" : ",") + margin + ' ';
        lines += value.is_array() ? member.dump() : Json(key).dump() + ": " + json_text(member, depth + 1);
    }
    return (value.is_array() ? '[' : '{') + lines + margin + (value.is_array() ? ']' : '}');
}

/// Writes `value` to the file `path`. Throws std::runtime_error if it cannot.
template <class Json>
void write_json(const std::string& path, const Json& value) {
    std::ofstream file(path);
    file << json_text(value) << '\n';
    file.close();
    if (!file) throw std::runtime_error("cannot write " + path);
}

}  // namespace zeropp_bench
