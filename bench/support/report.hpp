#pragma once
/// \file
/// Output of results: a table as nccl-tests', printed row by row, and a JSON file at the end.

#include "support/bounds.hpp"
#include "support/options.hpp"
#include "support/ranks.hpp"

#include <nlohmann/json.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace zeropp_bench {

/// A column of a table, right-aligned under its two or three lines of heading.
struct column {
    std::string group;  // printed once over adjacent columns that share it
    std::string name;
    std::string unit;
    int width;
    /// Path of the column's value in a row, a JSON pointer.
    std::string value;
    /// Digits of a number after its point.
    int decimals = 0;
    /// Printed for null.
    std::string null = "N/A";
};

/// A number as a cell; "N/A" for NaN.
std::string cell(double number, int decimals);

/// The cell of `row` in `column`; "N/A" if the row has no such value.
std::string cell(const nlohmann::ordered_json& row, const column& column);

/// A JSON number; null if it is not finite.
nlohmann::ordered_json json_number(double number);

/// Adds the result of a check to a part of a row: "wrong", the number of wrong elements, or null without a check; and
/// "sqnr_db", the signal-to-noise ratio in dB: null if it is infinite, left out if it is unknown.
void add_check(nlohmann::ordered_json& form, const std::optional<tally>& check);

/// Prints and collects rows on the rank that `speaks`, does nothing on others.
class report {
public:
    report(bool speaks, std::vector<column> columns) : speaks_(speaks), columns_(std::move(columns)) {}

    /// Adds a fact about all rows: a line of the heading, and a member of the JSON file.
    void fact(const std::string& key, const nlohmann::ordered_json& value);
    void comment(const std::string& text);
    /// Prints the heading. Call it before the first row.
    void heading();
    /// Prints a row of the table, and keeps all of it for the JSON file.
    void row(nlohmann::ordered_json row);
    /// Writes the JSON file, if `path` is not empty. Throws std::runtime_error if that fails.
    void write(const std::string& path) const;

private:
    bool speaks_;
    std::vector<column> columns_;
    nlohmann::ordered_json facts_ = nlohmann::ordered_json::object();
    nlohmann::ordered_json rows_ = nlohmann::ordered_json::array();
};

/// Adds the facts of every report.
void describe_program(report& r, const program_facts& program, const options& o);

/// Adds the facts of every report of several ranks.
void describe_program(report& r, const program_facts& program, const options& o, const rank_context& ranks);

/// Ends a report with the verdict and the JSON file. Returns the program's exit status: 1 if elements were wrong.
int finish_report(report& r, const options& o, std::uint64_t wrong);

}  // namespace zeropp_bench
