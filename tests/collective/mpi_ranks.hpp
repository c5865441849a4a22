#pragma once
/// \file
/// What the tests of the collectives on MPI share. Every rank runs every test case; the program's main() adds them up.

#include "collective/ranks.hpp"

#include <zeropp/transport/mpi.hpp>

#include <mpi.h>

#include <vector>

namespace collective_test {

inline int world_size() {
    int size = 0;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    return size;
}

/// The maps that fit the ranks of this run; with none in the list, one node and one rank on each.
inline std::vector<node_map> fitting_node_maps() {
    std::vector<node_map> maps;
    for (const node_map& map : node_maps()) {
        if (map.ranks() == world_size()) maps.push_back(map);
    }
    if (!maps.empty()) return maps;
    node_map one{"one node", {}}, each{"one rank on each node", {}};
    for (int r = 0; r != world_size(); ++r) {
        one.node_of_rank.push_back(0);
        each.node_of_rank.push_back(r);
    }
    return {one, each};
}

inline zeropp::mpi_transport world() { return zeropp::mpi_transport::duplicate(MPI_COMM_WORLD); }

}  // namespace collective_test
