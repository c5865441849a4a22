#pragma once
/// \file
/// Starts the ranks of a benchmark.

#include "support/host_place.hpp"
#include "support/options.hpp"
#include "support/ranks.hpp"

#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace zeropp_bench {

/// One rank with a GPU, from which a program makes its rank_context.
struct gpu_rank {
    zeropp::two_level nodes;
    /// Connects all ranks' host memory.
    any_host_transport control;
    /// Number of the rank's GPU.
    int gpu;
    /// True if this rank is a process, false if all ranks are threads of one process.
    bool own_process;
};

/// Work of ranks with GPUs.
struct gpu_work {
    /// Number of GPUs that this process sees.
    std::function<int()> gpus;
    std::function<int(const options&, const gpu_rank&)> run;
};

/// Work of every rank. It returns the exit status, equal on all ranks.
struct rank_work {
    std::function<int(const options&, ranks_on<host_place>&)> on_host;
    /// Work with -t nccl, in builds that have it.
    std::optional<gpu_work> on_gpu = std::nullopt;
};

/// Work of a program with -t nccl: defined by collective_perf.cu.in, or empty by without_nccl.cpp.
std::optional<gpu_work> work_on_gpus();

/// Reads the command line, starts its ranks and runs `work` on each. Returns the program's exit status: 2, with one
/// line from one rank, if options are wrong or GPUs are missing; 1 if the run failed.
int launch(int argc, char** argv, const program_facts& program, const rank_work& work);

/// Runs `work` without other processes: prints help or mistakes, or starts ranks as threads. `with_mpi`: whether this
/// build has MPI.
int launch_in_this_process(const parsed_options& parsed, const program_facts& program, const rank_work& work,
                           bool with_mpi);

/// The nodes of --ranks-per-node. Throws precondition_error unless it divides `ranks`.
inline zeropp::two_level wanted_nodes(const options& o, int ranks) {
    return zeropp::two_level::of_size(ranks, o.ranks_per_node == 0 ? ranks : o.ranks_per_node);
}

/// Throws precondition_error unless --sites divides the nodes.
void require_sites(const options& o, const zeropp::two_level& nodes);

/// Throws precondition_error unless a machine has a GPU for each of its ranks.
void require_gpus(int ranks, int gpus);

/// Error text for a transport that this build lacks.
std::string unknown_transport(const program_facts& program, std::string_view given, bool with_mpi,
                              const rank_work& work);

}  // namespace zeropp_bench
