#pragma once

#include "prediction.hpp"

#include <iosfwd>

namespace plan {

/// Prints the prediction as tables, with advice.
void print_report(std::ostream& out, const settings& s, const prediction& p);

}  // namespace plan
