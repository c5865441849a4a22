#pragma once
/// \file
/// What a rank writes down of itself while it runs, so that it is known whatever ends the rank.

#include <nlohmann/json.hpp>

#include <string>

namespace zeropp_reliability {

/// What this process holds.
struct held {
    int descriptors;
    long resident_kib;

    static held now();
};

/// Seconds since 1970, to compare between processes of one machine.
double wall_seconds();

/// Appends events to FOLDER/rankR.jsonl, a line of JSON each, written at once.
class journal {
public:
    /// Throws zeropp::error where the file cannot be written.
    journal(const std::string& folder, int rank);
    ~journal();
    journal(const journal&) = delete;
    journal& operator=(const journal&) = delete;

    /// Adds the members "event" and "wall" (seconds) to `facts`.
    void write(const std::string& event, nlohmann::json facts = nlohmann::json::object());

private:
    int file_;
};

/// The members "type" and "what" of the exception that is being handled. Call in a catch block.
nlohmann::json current_error();

}  // namespace zeropp_reliability
