#pragma once

#include "settings.hpp"

#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

namespace plan {

/// Held-out loss above synchronous training in bf16, in percent, and its standard error: of a model of 137 thousand
/// parameters, as measured in bench/results/pareto.md.
struct measured_loss {
    double percent;
    double error;
};

/// A way to train, predicted.
struct option {
    std::string name;
    double sent;           // bytes that a node, or an island, sends to others in a step
    std::uint64_t memory;  // of a rank, in bytes
    double seconds;        // of a step, without overlap
    measured_loss loss;
    std::string measured_on;        // "2 nodes": where the loss was measured, if not on as many as planned
    bool on_fewer_islands = false;  // whether the loss was measured on fewer islands than planned
};

/// Synchronous settings and, if given.islands is set, local steps, all with the formats and intervals that were
/// measured. ZeRO-3 is first. Others are sorted by loss; a loss below bf16's counts as 0. Of equal losses, the option
/// that sends more bytes is first.
std::vector<option> predict_options(const settings& given);

/// Index of the recommended option. Of those that fit into memory, with a loss of at most `loss_budget` percent and a
/// step at most a tenth longer than the shortest of them, it is the first. `options.size()` if there is none. A finite
/// budget leaves out losses on fewer islands.
std::size_t recommended(const settings& s, const std::vector<option>& options, double loss_budget);

/// Prints as a row of a table the recommended settings, within s.loss_budget and at any loss; then all.
void print_recommendation(std::ostream& out, const settings& s);

}  // namespace plan
