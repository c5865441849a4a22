#pragma once
/// \file
/// Functions of the simulator, implemented by in_simulation.cpp or without_simulation.cpp.

#include <vector>

namespace zeropp_scale {

/// True under SimGrid.
bool simulated();

/// Starts to count bytes on the links of nodes, nic0_UP and so on, and of sites, site0_UP and so on. One rank calls it,
/// once, while nothing is sent.
void count_links();

/// Bytes that each node has sent to others, and then each site, since count_links(); empty without a simulator.
std::vector<double> bytes_over_links();

}  // namespace zeropp_scale
