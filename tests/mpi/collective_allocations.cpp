/// \file
/// The hot path allocates nothing on MPI: not the library, that is, whatever MPI itself does by other means than new.

#include "collective/mpi_ranks.hpp"
#include "collective/repeated_step.hpp"
#include "support/allocation_count.hpp"
#include "support/catch.hpp"

#include <zeropp/execution/host.hpp>

using namespace collective_test;

TEST_CASE("collectives on MPI allocate nothing after the first step") {
    if (!zeropp_test::counts_allocations()) {
        WARN("skipped: allocations cannot be counted here");
        return;
    }
    for (const node_map& map : fitting_node_maps()) {
        INFO(map.name);
        zeropp::communicator comm(map.topology(), world());
        const zeropp::host exec;
        repeated_step step(comm);
        step.enqueue(zeropp::pipeline<zeropp::host>{exec, exec}, 0);
        const std::size_t before = zeropp_test::allocation_count;
        for (std::uint64_t s = 1; s != 4; ++s) step.enqueue(zeropp::pipeline<zeropp::host>{exec, exec}, s);
        CHECK(zeropp_test::allocation_count == before);
    }
}
