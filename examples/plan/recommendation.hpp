#pragma once

#include "settings.hpp"

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

namespace plan {

/// Held-out loss above synchronous training in bf16, in percent, as measured in bench/results; and its standard error,
/// unless there was one seed.
struct measured_loss {
    double percent;
    std::optional<double> error;
};

/// A way to train, predicted.
struct option {
    std::string name;
    double sent;           // bytes that a node, or an island, sends to others in a step
    std::uint64_t memory;  // of a rank, in bytes
    double seconds;        // of a step, without overlap
    measured_loss loss;
    bool on_two_islands = false;  // the loss is of two islands, and these are more
};

/// Synchronous settings and, if s.islands is set, local steps with the intervals and formats that were measured. Least
/// loss first; below that of bf16 counts as equal, and then most bytes are first: ZeRO-3 is the first of all.
std::vector<option> predict_options(const settings& s);

/// Index of the first option that fits into memory and has a step at most a tenth longer than the shortest fitting one.
/// Number of options if none fits.
std::size_t recommended(const settings& s, const std::vector<option>& options);

/// Prints the recommended setting as a row of a table, then the others.
void print_recommendation(std::ostream& out, const settings& s);

}  // namespace plan
