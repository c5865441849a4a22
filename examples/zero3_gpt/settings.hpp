#pragma once

#include "deepspeed_config.hpp"
#include "model.hpp"

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace zero3_gpt {

/// One training run: its name and its configuration.
struct run_settings {
    std::string name;
    deepspeed_config config;
};

/// The device on which the ranks compute.
enum class device_kind { host, cuda };

/// A rank that ends in the middle of a step, to test that the others go on.
struct planned_death {
    int rank;
    int step;  // counted from 1
};

/// Thrown by a thread of a planned death, which ends without an error.
struct rank_died {};

/// Everything that the command line sets.
struct settings {
    model_config network;
    std::vector<run_settings> runs;
    device_kind device = device_kind::host;
    std::string weights;       // that training begins with, as `model` takes them
    std::string text_file;     // empty: the licence texts
    int held_out_windows = 0;  // at most; 0: all
    std::uint64_t seed = 1;
    int steps = 400;
    int warmup_steps = 30;
    double final_rate = 0.1;               // of the peak learning rate
    int ranks = 4;                         // threads; under MPI the launcher sets the number
    int ranks_per_node = 0;                // 0: as MPI discovers; threads: all on one node
    int sites = 1;                         // that the nodes are divided over
    int codec_threads = 1;                 // of each rank, on the host
    std::string json_file;                 // empty: none
    std::string curve_file;                // empty: none
    std::string dump_folder;               // empty: none
    int dump_step = 0;                     // counted from 1; 0: the last step
    std::chrono::milliseconds timeout{0};  // of each operation between ranks; 0: none
    std::vector<planned_death> deaths;
    std::function<void()> die = [] { throw rank_died(); };  // ends a rank of `deaths`
};

/// Reads the command line and the configurations it names. Returns nothing after --help or wrong arguments, with
/// `exit_code` set; prints only if `speak`. `launched`, if not 0, is the number of ranks in place of --ranks. Throws
/// std::exception for wrong configurations and combinations.
std::optional<settings> read_settings(int argc, char** argv, bool speak, int& exit_code, int launched = 0);

}  // namespace zero3_gpt
