#pragma once
/// \file
/// From main() to ranks.

#include "support/options.hpp"
#include "support/ranks.hpp"

#include <functional>
#include <string_view>

namespace zeropp_bench {

/// What every rank runs; returns the exit status, the same on all ranks.
using rank_work = std::function<int(const options&, rank_context&)>;

/// Reads the command line, starts the ranks that it asks for and runs `work` on each. Returns the exit status of the
/// program: 2, with one line from one rank, where the options are wrong; 1 where the run has failed.
int launch(int argc, char** argv, const program_facts& program, const rank_work& work);

/// The same where no other process takes part: help, mistakes, and ranks that are threads. `built` lists the transports
/// of this build.
int launch_in_this_process(const parsed_options& parsed, const program_facts& program, const rank_work& work,
                           std::string_view built);

/// The nodes that --ranks-per-node asks for. Throws precondition_error where the ranks cannot be divided so.
inline zeropp::two_level wanted_nodes(const options& o, int ranks) {
    return zeropp::two_level::of_size(ranks, o.ranks_per_node == 0 ? ranks : o.ranks_per_node);
}

/// The mistake of naming a transport that this build does not have.
std::string unknown_transport(const program_facts& program, std::string_view given, std::string_view built);

}  // namespace zeropp_bench
