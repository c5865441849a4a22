#include "support/options.hpp"

#include "support/quantizers.hpp"

#include <zeropp/layout/chunking.hpp>

#include <CLI/CLI.hpp>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <map>
#include <set>
#include <stdexcept>

namespace zeropp_bench {

std::optional<std::size_t> parse_size(const std::string& text) {
    // strtod also takes "inf", " 1", "0x1" and "1e3".
    const std::string digits = text.substr(0, text.find_first_not_of("0123456789."));
    char* end = nullptr;
    const double number = std::strtod(digits.c_str(), &end);
    if (digits.empty() || *end != '\0') return std::nullopt;
    const std::string unit = text.substr(digits.size());
    double factor = 1;
    if (!unit.empty()) {
        if (unit.size() != 1) return std::nullopt;
        const std::size_t power = std::string("kKmMgG").find(unit[0]);
        if (power == std::string::npos) return std::nullopt;
        factor = std::pow(1024.0, static_cast<double>(power / 2 + 1));
    }
    const double bytes = number * factor;
    if (!(bytes <= 0x1p50)) return std::nullopt;
    return static_cast<std::size_t>(bytes);
}

std::vector<std::size_t> options::sizes() const {
    std::vector<std::size_t> all;
    for (std::size_t bytes = min_bytes; bytes <= max_bytes;) {
        all.push_back(bytes);
        bytes = step_factor > 1 ? bytes * static_cast<std::size_t>(step_factor) : bytes + step_bytes;
    }
    return all;
}

std::string mistake(const program_facts& program, std::string_view what) {
    return program.name + ": " + std::string(what) + "\n";
}

namespace {

/// Checks more than CLI11 can. Throws std::exception.
void require_sound(const options& o, const program_facts& program) {
    if (o.min_bytes > o.max_bytes) {
        throw std::invalid_argument("--minbytes is " + std::to_string(o.min_bytes) + ", more than --maxbytes, " +
                                    std::to_string(o.max_bytes));
    }
    // Fails before the run and not after it. Appending keeps the old file until the new one is written.
    if (!o.output_file.empty() && !std::ofstream(o.output_file, std::ios::app)) {
        throw std::invalid_argument("--output_file: cannot write " + o.output_file);
    }
    for (const std::string& name : o.quantizers) {
        switch (program.quantizes) {
        case wire::one_hop:
            bench_quantizers::parse(name);
            break;
        case wire::two_hops:
            hop_quantizers::parse(name);
            break;
        case wire::codec:
            codec_quantizers::parse(name);
            break;
        }
    }
    for (const std::string& name : o.datatypes) {
        if (!with_datatype(name, [](auto) {})) {
            throw std::invalid_argument("--datatype: expected float, half or bfloat16, given \"" + name + "\"");
        }
    }
}

}  // namespace

parsed_options parse_options(int argc, const char* const* argv, const program_facts& program) {
    options o;
    o.quantizers = program.quantizers;
    if (!program.has_checks) o.checks = 0;
    CLI::App app(program.purpose, program.name);
    app.get_formatter()->column_width(40);

    const auto add_size = [&](const std::string& names, std::size_t& bytes, std::size_t least,
                              const std::string& text) {
        app.add_option_function<std::string>(
               names,
               [&bytes, names, least](const std::string& given) {
                   const auto size = parse_size(given);
                   if (!size || *size < least) {
                       throw CLI::ValidationError(names, "expected bytes, at least " + std::to_string(least) +
                                                             ", as in 4096, 64K, 32M or 1G; given \"" + given + "\"");
                   }
                   bytes = *size;
               },
               text)
            ->type_name("BYTES");
    };
    const std::string whole = program.has_ranks ? ": the bytes of the whole tensor in its own type, of all ranks' "
                                                  "shards together"
                                                : ": the bytes of the tensor in its own type";
    add_size("-b,--minbytes", o.min_bytes, sizeof(float), "least size" + whole + " [32M]");
    add_size("-e,--maxbytes", o.max_bytes, sizeof(float), "largest size [32M]");
    add_size("-i,--stepbytes", o.step_bytes, 1, "from one size to the next, where the factor is 1 [1M]");
    app.add_option("-f,--stepfactor", o.step_factor, "factor from one size to the next")
        ->check(CLI::Range(1, 1 << 20))
        ->capture_default_str();
    app.add_option("-n,--iters", o.iterations, "iterations that are timed, each by itself")
        ->check(CLI::Range(1, 1'000'000))
        ->capture_default_str();
    app.add_option("-w,--warmup_iters", o.warmup_iterations, "iterations before them")
        ->check(CLI::Range(0, 1'000'000))
        ->capture_default_str();
    if (program.has_checks) {
        app.add_option("-c,--check", o.checks, "iterations whose results are checked, 0 for none")
            ->check(CLI::Range(0, 1000))
            ->capture_default_str();
    }
    app.add_option("-J,--output_file", o.output_file, "write the results to this file, as JSON");
    if (!program.quantizers.empty()) {
        app.add_option("-q,--quantizer", o.quantizers,
                       (program.quantizes == wire::two_hops
                            ? "quantizers of the hops, INTRA_NODE+INTER_NODE, or one name for both; several by "
                              "commas. Pairs have bf16 or int8:256 intra-node and fewer bits inter-node. One of "
                            : "quantizers, by commas. One of ") +
                           (program.quantizes == wire::codec ? codec_quantizers::list() : bench_quantizers::list()))
            ->delimiter(',')
            ->capture_default_str();
    }
    if (program.has_datatypes) {
        app.add_option("-d,--datatype", o.datatypes, "element types, by commas: float, half, bfloat16")
            ->delimiter(',')
            ->capture_default_str();
    }
    if (program.has_ranks) {
        app.add_option(
            "-t,--transport", o.transport,
            "how ranks are connected: threads, mpi, or nccl with a GPU for each rank, which are threads or what "
            "mpirun has started [mpi where mpirun has started it, else threads]");
        app.add_option("-r,--ranks", o.ranks, "ranks, where they are threads; mpirun says otherwise")
            ->check(CLI::Range(1, 256))
            ->capture_default_str();
        app.add_option("--ranks-per-node", o.ranks_per_node,
                       "ranks that count as one node [as discovered: threads are one node]")
            ->check(CLI::PositiveNumber);
    } else {
        app.add_option("--threads", o.threads, "threads that each pass is divided over, beside the pass on one")
            ->check(CLI::Range(1, 1024))
            ->capture_default_str();
        app.add_option("--target", o.target, "instructions to use: baseline, avx2 or avx512 [the best there are]")
            ->check(CLI::IsMember({"baseline", "avx2", "avx512"}));
    }
    if (program.has_sites) {
        app.add_option("--sites", o.sites, "sites, each of as many nodes as the others, of consecutive ranks")
            ->check(CLI::PositiveNumber)
            ->capture_default_str();
    }
    if (program.has_chunks) {
        app.add_option("--chunks", o.chunks,
                       "chunks whose hops overlap, on two threads of every rank; 1: one hop after the other; auto: as "
                       "many as the library takes")
            ->transform(CLI::Transformer(std::map<std::string, int>{{"auto", zeropp::auto_chunks}}))
            ->check(CLI::Range(1, 1'000'000) | CLI::IsMember(std::set<int>{zeropp::auto_chunks}))
            ->capture_default_str();
    }

    try {
        app.parse(argc, argv);
        require_sound(o, program);
    } catch (const CLI::CallForHelp&) {
        return {std::nullopt, app.help(), 0};
    } catch (const std::exception& e) {
        return {std::nullopt, mistake(program, e.what()), 2};
    }
    return {o, "", 0};
}

}  // namespace zeropp_bench
