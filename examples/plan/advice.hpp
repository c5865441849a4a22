#pragma once

#include "prediction.hpp"

#include <string>
#include <vector>

namespace plan {

/// What the numbers mean, a sentence or two each.
std::vector<std::string> advise(const settings& s, const prediction& p);

/// Whether a step is notably faster, without overlap or with.
bool gains(const run& zero3, const run& compressed);

/// What becomes of the step, in a sentence. Requires both to be predicted from `s`.
std::string on_the_whole(const settings& s, const run& zero3, const run& compressed);

/// Whether so many bytes on each rank fit beside what else is there. Requires s.memory > 0.
bool fits(const settings& s, std::uint64_t bytes);

/// A number with so many digits behind the point.
std::string fixed(double number, int digits);

}  // namespace plan
