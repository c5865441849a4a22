#pragma once
/// \file
/// The command line of the benchmarks: nccl-tests' letters and meanings, and more options.

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
    /// Empty: mpi if a launcher started the program, else threads.
    std::string transport;
    int ranks = 4;
    /// 0: ranks that share memory.
    int ranks_per_node = 0;
    /// Sites of equal numbers of nodes.
    int sites = 1;
    int chunks = 1;
    int threads = 1;
    /// Empty: the best one.
    std::string target;

    /// Sizes from `min_bytes` to `max_bytes`, by `step_factor`, or by `step_bytes` if the factor is 1.
    std::vector<std::size_t> sizes() const;
};

/// Meaning of -q: a quantizer of a collective, a pair for its two hops, or a quantizer of codec_perf.
enum class wire { one_hop, two_hops, codec };

/// Name and purpose of a program, and its particular options.
struct program_facts {
    std::string name;
    std::string purpose;
    /// Default of -q; without one, there is no -q.
    std::vector<std::string> quantizers = {};
    wire quantizes = wire::one_hop;
    /// True if -d exists.
    bool has_datatypes = true;
    /// True if -c exists.
    bool has_checks = true;
    /// True: options of ranks and transports. False: options of a codec.
    bool has_ranks = true;
    /// True if --chunks exists.
    bool has_chunks = false;
    /// True if --sites exists.
    bool has_sites = false;
    /// True if hops overlap on two threads of a rank for any number of chunks.
    bool overlaps = false;
};

/// A size in bytes: a number with an optional K, M or G (of 1024, in either case). Empty for other `text`.
std::optional<std::size_t> parse_size(const std::string& text);

/// The options, or a message to print in their place: `exit_code` is 0 for help, 2 for a mistake.
struct parsed_options {
    std::optional<options> wanted;
    std::string message;
    int exit_code = 0;
};

parsed_options parse_options(int argc, const char* const* argv, const program_facts& program);

/// One line that names the program and the mistake `what`.
std::string mistake(const program_facts& program, std::string_view what);

}  // namespace zeropp_bench
