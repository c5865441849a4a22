#pragma once

#include "prediction.hpp"

namespace plan {

/// Writes the prediction to s.json_file, in bytes and seconds. Throws std::runtime_error if the file cannot be written.
void write_json(const settings& s, const prediction& p);

/// Writes a gnuplot script to s.sweep_file: speed-ups over ZeRO-3 against the rate of a node's link. Throws
/// std::runtime_error if the file cannot be written.
void write_sweep(const settings& s);

}  // namespace plan
