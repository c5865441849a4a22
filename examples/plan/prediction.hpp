#pragma once

#include "settings.hpp"

#include <zeropp/plan/memory.hpp>
#include <zeropp/plan/time.hpp>
#include <zeropp/plan/volume.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace plan {

/// ZeRO-3, or with some of ZeRO++: what a step sends and how long it takes.
struct run {
    std::string name;
    double code_bits = 0;      // that cross nodes for a parameter: no scales, and infinitely many nodes
    zeropp::step_volume sent;  // by one rank
    zeropp::step_time time;
};

/// How a model's states are divided, and what that takes on each rank, in bytes.
struct layout {
    std::string name;
    zeropp::states_memory states;
    std::uint64_t secondary = 0;
    std::uint64_t residuals = 0;
    std::uint64_t scratch = 0;

    std::uint64_t total() const { return states.total() + secondary + residuals + scratch; }
};

/// Secondary partitions of one group size: what they cost and what they send.
struct secondary_choice {
    int group_size;
    std::uint64_t memory;        // of the partition
    std::uint64_t total_memory;  // of all of ZeRO++ with it
    zeropp::volume sent;         // by one rank, backward
    double seconds;              // of a step without overlap
};

struct prediction {
    std::vector<run> runs;  // as predict_runs
    std::vector<layout> layouts;
    std::vector<secondary_choice> choices;
};

/// What of ZeRO++ is used; nothing is ZeRO-3. Or, in place of all of it, differences of the weights that nodes keep,
/// and gradients beside them; or the same with precision by layer, which requires s.by_layer.
struct parts {
    bool qwz = false;
    bool hpz = false;
    bool qgz = false;
    bool differences = false;
    bool by_layer = false;
};

run predict_run(const settings& s, std::string name, const parts& of);
layout predict_layout(const settings& s, std::string name, const parts& of);

/// The runs by name: zero3, qwz, hpz, qgz, qwz+qgz, zeropp, differences, and by_layer where s.by_layer is there.
std::vector<run> predict_runs(const settings& s);
inline const run& all_of_zeropp(const std::vector<run>& runs) { return runs[5]; }

prediction predict(const settings& s);

}  // namespace plan
