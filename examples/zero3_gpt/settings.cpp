#include "settings.hpp"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>
#include <stdexcept>
#include <string>

namespace zero3_gpt {

namespace {

/// A death from "RANK@STEP".
planned_death death_of(const std::string& text, int ranks, int steps) {
    planned_death death{};
    std::istringstream in(text);
    char at = 0;
    if (in >> death.rank >> at >> death.step && at == '@' && in.peek() == std::istringstream::traits_type::eof() &&
        death.rank >= 0 && death.rank < ranks && death.step >= 1 && death.step <= steps) {
        return death;
    }
    throw std::invalid_argument("--kill: expected RANK@STEP with one of the " + std::to_string(ranks) +
                                " ranks and the " + std::to_string(steps) + " steps, given " + text);
}

/// CLI::Range accepts NaN.
void require_range(const std::string& option, double given, double least, double most) {
    if (given >= least && given <= most) return;
    std::ostringstream problem;
    problem << option << ": expected a number from " << least << " to " << most << ", given " << given;
    throw std::invalid_argument(problem.str());
}

/// Throws before the training if `file` cannot be written. Appending keeps its present contents.
void require_writable(const std::string& option, const std::string& file) {
    if (file.empty()) return;
    const bool is_new = !std::filesystem::exists(file);
    if (!std::ofstream(file, std::ios::app)) throw std::invalid_argument(option + ": cannot write " + file);
    if (is_new) std::filesystem::remove(file);
}

}  // namespace

std::optional<settings> read_settings(int argc, char** argv, bool speak, int& exit_code, int launched) {
    settings s;
    std::vector<std::string> configs;
    CLI::App app("Trains a small byte-level GPT with ZeRO-3, once for each configuration, and compares the runs.");
    app.add_option("configs", configs, "DeepSpeed-style JSON files; the first is the baseline")->required();
    std::string device = "host";
    app.add_option("--device", device, "where ranks compute")
        ->check(CLI::IsMember({"host", "cuda"}))
        ->capture_default_str();
    app.add_option(
        "--weights", s.weights,
        "FOLDER/RUN: begin with weights that --dump has written, files FOLDER/RUN.UNIT.weights.fp32 of units 0 to "
        "layers + 1, each with the unit's number of floats; give the dump's --layers, --heads, --width and --context "
        "(default: random weights)");
    app.add_option("--text", s.text_file, "text to train on (default: the system's licence texts)");
    app.add_option("--held-out-windows", s.held_out_windows,
                   "at most as many windows of held-out text, evenly spread (default: all)")
        ->check(CLI::PositiveNumber);
    app.add_option("--steps", s.steps, "training steps")->check(CLI::Range(1, 1'000'000))->capture_default_str();
    app.add_option("--warmup", s.warmup_steps, "steps of learning-rate warm-up")
        ->check(CLI::Range(0, 1'000'000))
        ->capture_default_str();
    app.add_option("--final-rate", s.final_rate,
                   "learning rate at the end of the cosine, one step after the last, as a part of the peak")
        ->capture_default_str();
    app.add_option("--seed", s.seed, "seed of the weights and of the order of the text")->capture_default_str();
    app.add_option("--layers", s.network.layers, "transformer blocks")->capture_default_str();
    app.add_option("--heads", s.network.heads, "attention heads")->capture_default_str();
    app.add_option("--width", s.network.width, "width of the residual stream")->capture_default_str();
    app.add_option("--context", s.network.context, "bytes in a window")->capture_default_str();
    app.add_option("--ranks", s.ranks, "ranks, where they are threads")
        ->check(CLI::Range(1, 256))
        ->capture_default_str();
    app.add_option("--ranks-per-node", s.ranks_per_node, "ranks that count as one node (default: as discovered)")
        ->check(CLI::PositiveNumber);
    app.add_option("--sites", s.sites, "sites, of as many of the nodes each, with slower links between them")
        ->check(CLI::PositiveNumber)
        ->capture_default_str();
    app.add_option("--codec-threads", s.codec_threads, "threads of each rank that quantize, on the host")
        ->check(CLI::Range(1, 256))
        ->capture_default_str();
    app.add_option("--json", s.json_file, "write the results to this file");
    app.add_option("--curve", s.curve_file, "write the training losses to this file, a column for each run");
    CLI::Option* const dump = app.add_option(
        "--dump", s.dump_folder,
        "write one step's whole weights, and rank 0's gradients before they are reduced, into this folder");
    app.add_option("--dump-step", s.dump_step, "the step to dump (default: the last)")
        ->check(CLI::PositiveNumber)
        ->needs(dump);
    double timeout = 0;
    CLI::Option* const of_timeout =
        app.add_option("--timeout", timeout,
                       "seconds that ranks wait for each other; then they go on without the ranks that did not come");
    std::vector<std::string> deaths;
    app.add_option("--kill", deaths, "RANK@STEP: this rank ends in the middle of this step, without a word")
        ->allow_extra_args(false)
        ->needs(of_timeout);
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& e) {
        exit_code = speak ? app.exit(e) : e.get_exit_code();
        return std::nullopt;
    }
    require_range("--final-rate", s.final_rate, 0, 1);
    if (of_timeout->count() != 0) {
        require_range("--timeout", timeout, 0.001, 1e9);
        s.timeout = std::chrono::round<std::chrono::milliseconds>(std::chrono::duration<double>(timeout));
    }
    if (launched != 0) s.ranks = launched;
    if (s.dump_step > s.steps) {
        throw std::invalid_argument("--dump-step: expected one of the " + std::to_string(s.steps) + " steps, given " +
                                    std::to_string(s.dump_step));
    }
    for (const std::string& death : deaths) s.deaths.push_back(death_of(death, s.ranks, s.steps));
    s.device = device == "cuda" ? device_kind::cuda : device_kind::host;
    if (s.device == device_kind::cuda && s.codec_threads != 1) {
        throw std::invalid_argument("--codec-threads: expected 1 with --device cuda, whose kernels quantize, given " +
                                    std::to_string(s.codec_threads));
    }
    for (const std::string& file : configs) {
        s.runs.push_back({std::filesystem::path(file).stem().string(), read_deepspeed_config(file)});
        deepspeed_config& config = s.runs.back().config;
        if (s.sites == 1 && config.zero.quantized_gradients && !config.zeropp.gradient_quantizer_inter_site.empty()) {
            config.warnings.push_back(file + ": zeropp.gradient_quantizer_inter_site is ignored: it has no effect "
                                             "without several --sites");
        }
    }
    for (std::size_t i = 0; !s.dump_folder.empty() && i != s.runs.size(); ++i) {
        const auto same = [&](const run_settings& other) { return other.name == s.runs[i].name; };
        if (std::ranges::count_if(s.runs, same) == 1) continue;
        throw std::invalid_argument("--dump: expected configurations with different names, given several " +
                                    s.runs[i].name);
    }
    for (const run_settings& run : s.runs) {
        if (s.sites == 1 || (s.timeout.count() == 0 && !run.config.zeropp.optimizer_mirror)) continue;
        throw std::invalid_argument(
            "--sites: expected 1 with --timeout or optimizer_mirror, which keep no sites, given " +
            std::to_string(s.sites));
    }
    if (s.timeout.count() != 0 && s.runs.size() != 1) {
        throw std::invalid_argument("--timeout: expected 1 configuration, given " + std::to_string(s.runs.size()));
    }
    // The rank that speaks writes.
    if (speak) {
        require_writable("--json", s.json_file);
        require_writable("--curve", s.curve_file);
    }
    return s;
}

}  // namespace zero3_gpt
