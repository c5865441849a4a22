#pragma once

#include <zeropp/plan/memory.hpp>
#include <zeropp/plan/time.hpp>
#include <zeropp/plan/volume.hpp>
#include <zeropp/topology/two_level.hpp>

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

namespace plan {

/// How residuals of error feedback are stored, for the hop inside and the hop across.
struct residual_formats {
    zeropp::wire_format inside;
    zeropp::wire_format across;
};

/// Precision by layer: differences of the weights that nodes keep, and gradients across nodes, in other formats for
/// embeddings and head than for the blocks between them.
struct by_layer_formats {
    std::size_t embeddings;  // so many of the first tensors are embeddings and head
    zeropp::wire_format differences;
    zeropp::wire_format block_gradients;
    zeropp::wire_format embedding_gradients;
    std::optional<residual_formats> block_residuals;
    std::optional<residual_formats> embedding_residuals;
};

/// Everything that the command line says, or a program that calls the planner.
struct settings {
    std::vector<std::size_t> tensors;  // elements of each
    zeropp::two_level ranks;
    int secondary_group_size;
    zeropp::wire_format plain;  // of ZeRO-3, its weights
    zeropp::wire_format plain_gradients;
    zeropp::wire_format weights;
    zeropp::wire_format gradients_inside;
    zeropp::wire_format gradients_across;
    zeropp::wire_format secondary;
    zeropp::wire_format differences;           // of weights, and, where those move,
    zeropp::wire_format difference_gradients;  // gradients across nodes
    std::optional<residual_formats> residuals;
    std::optional<residual_formats> difference_residuals;
    std::optional<by_layer_formats> by_layer;  // where it is known which tensors are embeddings
    int chunks = 1;                            // of a reduce-scatter
    int gather_chunks = 1;                     // of an all-gather
    zeropp::state_bytes bytes;
    zeropp::machine speed;
    zeropp::compute_time compute;
    double memory = 0;        // of a GPU, in bytes; 0: not said
    double other_memory = 0;  // what else lies in it
    std::string json_file;    // empty: none
    std::string sweep_file;   // empty: none

    std::uint64_t elements() const { return std::accumulate(tensors.begin(), tensors.end(), std::uint64_t{0}); }
};

/// Reads the command line. Returns nothing where --help or a mistake has ended the program, with `exit_code` set.
/// Throws std::exception for a mistake that is to be reported.
std::optional<settings> read_settings(int argc, char** argv, int& exit_code);

/// What to say after a mistake.
extern const char* const usage;

}  // namespace plan
