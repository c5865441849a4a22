#pragma once
/// \file
/// Records that a rank writes while it runs, so that they survive any end of the rank.

#include <nlohmann/json.hpp>

#include <string>

namespace zeropp_reliability {

/// Resources that this process holds.
struct held {
    int descriptors;
    long resident_kib;

    static held now();
};

/// Seconds since 1970, comparable between processes of one machine.
double wall_seconds();

/// Appends events to FOLDER/rankR.jsonl, a line of JSON each, written at once.
class journal {
public:
    /// Throws zeropp::error if the file cannot be opened.
    journal(const std::string& folder, int rank);
    ~journal();
    journal(const journal&) = delete;
    journal& operator=(const journal&) = delete;

    /// Writes `facts`, "event" and "wall" (seconds). Throws zeropp::error if that fails.
    void write(const std::string& event, nlohmann::json facts = nlohmann::json::object());

private:
    int file_;
};

/// The current exception as members `type` and `what`. Call it in a catch block.
nlohmann::json current_error();

}  // namespace zeropp_reliability
