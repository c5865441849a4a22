#pragma once
/// \file
/// What only a simulator knows. Two sources implement it: in_simulation.cpp and without_simulation.cpp.

#include <vector>

namespace zeropp_scale {

/// Whether the ranks are SimGrid's.
bool simulated();

/// Starts to count what crosses the links of nodes, called nicN. Called by one rank, once, while nothing is sent.
void count_links();

/// Bytes that each node's link has carried to the network since count_links(), by node; empty without a simulator.
std::vector<double> bytes_sent_by_node();

}  // namespace zeropp_scale
