#pragma once

#include "deepspeed_config.hpp"
#include "model.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace zero3_gpt {

/// One training run: a configuration and what it is called.
struct run_settings {
    std::string name;
    deepspeed_config config;
};

/// Where the ranks compute.
enum class device_kind { host, cuda };

/// Everything that the command line says.
struct settings {
    model_config network;
    std::vector<run_settings> runs;
    device_kind device = device_kind::host;
    std::string text_file;  // empty: the licence texts
    std::uint64_t seed = 1;
    int steps = 400;
    int warmup_steps = 30;
    double final_rate = 0.1;  // of the peak learning rate
    int ranks = 4;            // on threads; under MPI the launcher says
    int ranks_per_node = 0;   // 0: as discovered, or all on one node
    int codec_threads = 1;    // of each rank, on the host
    std::string json_file;    // empty: none
    std::string curve_file;   // empty: none
    std::string dump_folder;  // empty: none
    int dump_step = 0;        // counted from 1; 0: the last one
};

/// Reads the command line and the configurations it names. Returns nothing where --help or a mistake has ended the
/// program, with `exit_code` set; `speak` says whether this process prints. Throws std::exception for wrong
/// configurations.
std::optional<settings> read_settings(int argc, char** argv, bool speak, int& exit_code);

}  // namespace zero3_gpt
