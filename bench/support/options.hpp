#pragma once
/// \file
/// The command line of the benchmarks: nccl-tests' letters and meanings, and ours beside them.

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace zeropp_bench {

struct options {
    /// Bytes of the whole tensor.
    std::size_t min_bytes = std::size_t{32} << 20;
    std::size_t max_bytes = std::size_t{32} << 20;
    std::size_t step_bytes = std::size_t{1} << 20;
    int step_factor = 1;
    int iterations = 20;
    int warmup_iterations = 1;
    int checks = 1;
    std::string output_file;
    std::vector<std::string> quantizers;
    std::vector<std::string> datatypes{"float"};
    /// Empty: as the program was launched.
    std::string transport;
    int ranks = 4;
    /// 0: as discovered.
    int ranks_per_node = 0;
    int chunks = 1;
    int threads = 1;
    /// Empty: the best one.
    std::string target;
    /// Empty: none.
    std::string trace_folder;

    /// From min_bytes to max_bytes by the factor or, where that is 1, by step_bytes.
    std::vector<std::size_t> sizes() const;
};

/// What a -q names: a quantizer of a collective, those of its two hops, or one of codec_perf's.
enum class wire { one_hop, two_hops, codec };

/// What a program says of itself, and which options it has beside those that all have.
struct program_facts {
    std::string name;
    std::string purpose;
    std::vector<std::string> quantizers;
    wire quantizes = wire::one_hop;
    /// Whether there are ranks, and what connects them; else there are the options of a codec alone.
    bool has_ranks = true;
    /// Whether there is --chunks.
    bool has_chunks = false;
};

/// A size in bytes: a number and K, M, G (of 1024, in either case) or nothing. Nothing where `text` is not one.
std::optional<std::size_t> parse_size(const std::string& text);

/// The options, or what to print in their place: `exit_code` is 0 for help, 2 for a mistake.
struct parsed_options {
    std::optional<options> wanted;
    std::string message;
    int exit_code = 0;
};

parsed_options parse_options(int argc, const char* const* argv, const program_facts& program);

/// The message of a mistake: one line, that names the program.
std::string mistake(const program_facts& program, std::string_view what);

}  // namespace zeropp_bench
