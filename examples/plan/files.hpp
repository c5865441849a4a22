#pragma once

#include "prediction.hpp"

namespace plan {

/// For programs: all of it, bytes and seconds. Throws std::runtime_error if the file cannot be written.
void write_json(const settings& s, const prediction& p);

/// Speed-up of each run over ZeRO-3 against the rate of a node's link, as a script that has gnuplot draw FILE.png.
/// Throws likewise.
void write_sweep(const settings& s);

}  // namespace plan
