#pragma once
/// \file
/// From main() to ranks.

#include "support/host_place.hpp"
#include "support/options.hpp"
#include "support/ranks.hpp"

#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace zeropp_bench {

/// One rank of a run whose ranks have a GPU each: what its program makes a rank_context of.
struct gpu_rank {
    zeropp::two_level nodes;
    /// Between the processors of all ranks.
    any_host_transport control;
    /// The number of its GPU.
    int gpu;
    /// Whether this rank is a process, and not a thread of the one that all ranks share.
    bool own_process;
};

/// What ranks with GPUs run.
struct gpu_work {
    /// How many GPUs this process sees.
    std::function<int()> gpus;
    std::function<int(const options&, const gpu_rank&)> run;
};

/// What every rank runs; returns the exit status, the same on all ranks.
struct rank_work {
    std::function<int(const options&, ranks_on<host_place>&)> on_host;
    /// What -t nccl is, in builds that have it.
    std::optional<gpu_work> on_gpu = std::nullopt;
};

/// What a program runs with -t nccl: defined by collective_perf.cu.in, and by without_nccl.cpp as nothing.
std::optional<gpu_work> work_on_gpus();

/// Reads the command line, starts the ranks that it asks for and runs `work` on each. Returns the exit status of the
/// program: 2, with one line from one rank, where the options are wrong or GPUs are missing; 1 where the run has
/// failed.
int launch(int argc, char** argv, const program_facts& program, const rank_work& work);

/// The same where no other process takes part: help, mistakes, and ranks that are threads. `with_mpi`: whether this
/// build has MPI.
int launch_in_this_process(const parsed_options& parsed, const program_facts& program, const rank_work& work,
                           bool with_mpi);

/// The nodes that --ranks-per-node asks for. Throws precondition_error where the ranks cannot be divided so.
inline zeropp::two_level wanted_nodes(const options& o, int ranks) {
    return zeropp::two_level::of_size(ranks, o.ranks_per_node == 0 ? ranks : o.ranks_per_node);
}

/// Throws precondition_error unless there is a GPU for each rank of a machine.
void require_gpus(int ranks, int gpus);

/// The mistake of naming a transport that this build does not have.
std::string unknown_transport(const program_facts& program, std::string_view given, bool with_mpi,
                              const rank_work& work);

}  // namespace zeropp_bench
