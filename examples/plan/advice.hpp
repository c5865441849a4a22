#pragma once

#include "prediction.hpp"

#include <string>
#include <vector>

namespace plan {

/// The numbers' meaning, in one or two sentences each.
std::vector<std::string> advise(const settings& s, const prediction& p);

/// True if a step is at least 5 % shorter, without overlap or with it.
bool gains(const run& zero3, const run& compressed);

/// The effect on the step, in a sentence. Requires both runs to be predicted from `s`.
std::string on_the_whole(const settings& s, const run& zero3, const run& compressed);

/// True if `bytes` fit into a GPU beside its other contents. Requires s.memory > 0.
bool fits(const settings& s, std::uint64_t bytes);

/// `number` with `digits` digits behind the point.
std::string fixed(double number, int digits);

}  // namespace plan
