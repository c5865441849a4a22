#pragma once

#include "settings.hpp"

#include <zeropp/plan/memory.hpp>
#include <zeropp/plan/step.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace plan {

/// A step of ZeRO-3, with or without parts of ZeRO++: bytes and time.
struct run {
    std::string name;
    double code_bits = 0;         // inter-node bits of codes for each parameter, on infinitely many nodes
    zeropp::step_volume sent;     // by the rank that sends the most
    zeropp::step_volume by_node;  // by all ranks of the node that sends the most
    zeropp::step_volume by_all;   // by all ranks
    zeropp::step_time time;
};

/// Division of a model's states, and its memory on each rank, in bytes.
struct layout {
    std::string name;
    zeropp::states_memory states;
    std::uint64_t secondary = 0;
    std::uint64_t residuals = 0;
    std::uint64_t scratch = 0;

    std::uint64_t total() const { return states.total() + secondary + residuals + scratch; }
};

/// Cost of secondary partitions of one group size, in bytes and seconds.
struct secondary_choice {
    int group_size;              // or zeropp::whole_nodes
    std::uint64_t memory;        // of the partition
    std::uint64_t total_memory;  // of all of ZeRO++ with the partition
    zeropp::volume sent;         // by one rank, backward
    double seconds;              // of a step without overlap
};

/// Training with local steps on each island: exchanges in bytes and seconds, and memory of a rank in bytes.
struct local_run {
    std::string name;
    std::uint64_t exchange;      // bytes that an island sends to others in an exchange of all tensors
    double bits;                 // bits that an island sends to others in a step, for each parameter
    double exchange_seconds;     // of all tensors at once
    double inner_seconds;        // of a step without overlap and exchanges
    double step_seconds;         // of a step, with its part of an exchange
    std::uint64_t outer_memory;  // of anchors, outer momenta, differences and residuals
    std::uint64_t total_memory;  // of all states
};

/// Copies of both moments on partner nodes, in bytes: of the rank that sends or keeps the most.
struct mirror_cost {
    mirror_settings how;
    zeropp::volume sent;  // for one copy of all tensors
    std::uint64_t memory;
};

struct prediction {
    std::vector<run> runs;  // in the order of predict_runs
    std::vector<layout> layouts;
    std::vector<secondary_choice> choices;
    std::vector<local_run> local_runs;  // empty unless s.islands is set
    std::optional<mirror_cost> mirrors;
};

/// Parts of ZeRO++ in use; none is ZeRO-3. `differences` replaces them all: updates by weight differences, and
/// gradients in their own format. `by_layer` is `differences` with precision by layer, and requires s.by_layer.
struct parts {
    bool qwz = false;
    bool hpz = false;
    bool qgz = false;
    bool differences = false;
    bool by_layer = false;
};

/// Text of a size of secondary groups: "8", or "whole nodes".
std::string group_text(int group_size);

run predict_run(const settings& s, std::string name, const parts& of);
layout predict_layout(const settings& s, std::string name, const parts& of);

/// Runs in this order: zero3, qwz, hpz, qgz, qwz+qgz, zeropp, differences, and by_layer if s.by_layer is set.
std::vector<run> predict_runs(const settings& s);
inline const run& all_of_zeropp(const std::vector<run>& runs) { return runs[5]; }

/// Local steps with ZeRO-3, ZeRO++ and differences inside islands, in this order; empty unless s.islands is set.
std::vector<local_run> predict_local_runs(const settings& s);

/// Cost of mirrors; nothing unless s.mirrors is set.
std::optional<mirror_cost> predict_mirrors(const settings& s);

prediction predict(const settings& s);

}  // namespace plan
