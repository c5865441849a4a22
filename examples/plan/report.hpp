#pragma once

#include "prediction.hpp"

#include <iosfwd>

namespace plan {

/// Prints the prediction as tables, with advice.
void print_report(std::ostream& out, const settings& s, const prediction& p);

/// Numbers of ranks on the nodes in words: "8 nodes x 4 ranks", or "3 nodes of 8, 8, 7 ranks".
std::string nodes_text(const zeropp::two_level& ranks);

}  // namespace plan
