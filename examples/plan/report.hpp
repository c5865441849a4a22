#pragma once

#include "prediction.hpp"

#include <iosfwd>

namespace plan {

/// For people.
void print_report(std::ostream& out, const settings& s, const prediction& p);

}  // namespace plan
