#pragma once

#include "engine.hpp"

#include <cstddef>
#include <iosfwd>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace zero3_gpt {

/// A failure after which the survivors went on.
struct recovery {
    int step;        // that failed and was taken again, counted from 0
    int ranks;       // that went on
    double seconds;  // from the start of the step that failed to the end of the next finished step
};

/// Results of one run. Traffic is the sum over all ranks, in bytes per step.
struct run_result {
    std::string name;
    std::vector<double> losses;                      // mean training loss of each step, in nats per byte
    double training_loss = 0;                        // mean of the last 20 steps
    double held_out_loss = 0;                        // with the weights that ranks gather
    double held_out_loss_of_masters = 0;             // with the optimizer's master weights
    std::optional<double> held_out_loss_of_average;  // with the average of weights, if configured
    std::size_t memory_bytes = 0;                    // of rank 0, without activations
    double step_seconds = 0;                         // median of steps, or of intervals' means with local steps
    std::vector<recovery> recoveries;
    bool of_first_rank = false;  // that is left
    phase_traffic traffic;

    std::uint64_t inter_site_bytes() const { return traffic.total().inter_site; }
    std::uint64_t inter_node_bytes() const { return traffic.total().inter_node; }
    std::uint64_t intra_node_bytes() const { return traffic.total().intra_node; }
};

/// Numbers that all runs share.
struct report_header {
    std::size_t parameters;
    int sites;
    int nodes_per_site;
    int ranks_per_node;
    int steps;
    std::uint64_t seed;
};

/// Prints one table; factors are relative to the first run.
void print_table(std::ostream& out, const report_header& header, std::span<const run_result> runs);
void write_json(const std::string& file, const report_header& header, std::span<const run_result> runs);
/// Writes one line per step, with columns step and each run's training loss.
void write_curve(const std::string& file, std::span<const run_result> runs);

/// Writes a unit's numbers to FOLDER/RUN.UNIT.WHAT.fp32, 4 bytes each, as in memory. Makes a missing folder.
void write_dump(const std::string& folder, const std::string& run, int unit, const std::string& what,
                std::span<const float> numbers);

}  // namespace zero3_gpt
