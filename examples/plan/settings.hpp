#pragma once

#include <zeropp/plan/memory.hpp>
#include <zeropp/plan/step.hpp>
#include <zeropp/topology/three_level.hpp>
#include <zeropp/topology/two_level.hpp>

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace plan {

/// Precision by layer: formats of weight differences and of inter-node gradients, for embeddings and head, and for the
/// blocks between them.
struct by_layer_formats {
    std::size_t embeddings;  // number of embedding and head tensors; they are the first ones
    zeropp::wire_format differences;
    zeropp::wire_format block_gradients;
    zeropp::wire_format embedding_gradients;
    std::optional<zeropp::level_formats> block_residuals;
    std::optional<zeropp::level_formats> embedding_residuals;
};

/// Local steps: islands of whole nodes, and the link of an island to the others.
struct island_settings {
    zeropp::local_steps local;
    zeropp::link_speed between;
};

/// Copies of the optimizer's moments on partner nodes.
struct mirror_settings {
    zeropp::wire_format format;
    int every;  // optimizer steps between two copies
};

/// Bits a weight that exact differences are expected to take, at a learning rate of 1e-4.
inline constexpr double usual_exact_bits = 2.08;

/// Everything that the command line, or a program that calls the planner, sets.
struct settings {
    std::vector<std::size_t> tensors;  // number of elements of each
    zeropp::two_level ranks;
    int sites = 1;              // of as many nodes each
    int secondary_group_size;   // or zeropp::whole_nodes
    zeropp::wire_format plain;  // of ZeRO-3's weights
    zeropp::wire_format plain_gradients;
    zeropp::wire_format weights;
    zeropp::level_formats gradients;
    zeropp::wire_format secondary;
    zeropp::wire_format differences;                 // of weights, for updates by differences
    zeropp::wire_format difference_gradients;        // of inter-node gradients, beside them
    std::optional<zeropp::level_formats> residuals;  // storage of error feedback
    std::optional<zeropp::level_formats> difference_residuals;
    std::optional<by_layer_formats> by_layer;  // set if the embeddings among the tensors are known
    std::optional<island_settings> islands;    // set for local steps
    std::optional<mirror_settings> mirrors;    // of moments, if wanted
    int chunks = 1;                            // of a reduce-scatter
    int gather_chunks = 1;                     // of an all-gather
    zeropp::state_bytes bytes;
    zeropp::machine speed;
    zeropp::compute_time compute;
    double memory = 0;        // of a GPU, in bytes; 0: not known
    double other_memory = 0;  // bytes of its other contents
    bool advise = false;      // print the recommended setting, then all
    double loss_budget = 1;   // most held-out loss of it above bf16's, in percent
    std::string json_file;    // empty: none
    std::string sweep_file;   // empty: none
    /// Bits a weight that exact differences are expected to take.
    double exact_bits = usual_exact_bits;

    /// f(topology): of the nodes or, if there are several sites, of nodes in sites.
    template <class F>
    auto on_topology(F f) const {
        if (sites == 1) return f(ranks);
        return f(zeropp::three_level(sites, ranks.groups() / sites, ranks.group_size(0)));
    }
    std::uint64_t elements() const { return std::accumulate(tensors.begin(), tensors.end(), std::uint64_t{0}); }
};

/// A machine in the units of the command line. 0 is unknown, except of links' rates.
struct machine_numbers {
    double intra_node_gbit = 2400;
    double inter_node_gbit = 100;
    double intra_node_us = 5;
    double inter_node_us = 20;
    double inter_site_gbit = 10;
    double inter_site_us = 1000;
    double codec_gb = 1000;
    double compute_ms = 0;
    double memory_gb = 0;
    double other_memory_gb = 0;
};

inline constexpr int most_ranks = 100'000;
inline constexpr std::size_t most_tensors = 1'000'000;
inline constexpr std::size_t most_parameters = 10'000'000'000'000;

// The command line and zeropp_predict check their numbers by these. Each throws zeropp::precondition_error.

/// `given`, if it is a number from `least` to `most`.
double in_range(const std::string& name, double given, double least, double most);
zeropp::link_speed link_of(const std::string& name, double gbit, double us);
void set_machine(settings& s, const machine_numbers& m);
/// Requires 1 to `most_tensors` tensors, with 1 to `most_parameters` elements together.
void require_tensors(std::span<const std::size_t> tensors);
/// Nodes of equal size, with at most `most_ranks` ranks together.
zeropp::two_level ranks_of(int nodes, int ranks_per_node);

/// Reads the command line. Returns nothing after --help, with `exit_code` set. Throws std::exception for a mistake.
std::optional<settings> read_settings(int argc, char** argv, int& exit_code);

/// Format of the quantizer with this name. Throws zeropp::precondition_error that lists the right names.
zeropp::wire_format format_named(const std::string& name);

/// Format of the weight differences with this name: of a quantizer, or exact ones, of which a weight is expected to
/// take `exact_bits` bits. Throws zeropp::precondition_error that lists the right names.
zeropp::wire_format difference_format_named(const std::string& name, double exact_bits);

/// Format in which `storage`, "fp32", "bf16" or "int8", keeps the residuals of the quantizer named `quantizer`.
zeropp::wire_format residual_format(const std::string& storage, const std::string& quantizer);

/// Printed after a mistake.
extern const char* const usage;

}  // namespace plan
