/// \file
/// The secondary partition on MPI: filled by a gather across all ranks, read inside the node, never stale.

#include "collective/mpi_ranks.hpp"
#include "support/catch.hpp"

#include <zeropp/codec/host.hpp>
#include <zeropp/collective/quantized_all_gather.hpp>
#include <zeropp/collective/secondary_partition_gather.hpp>
#include <zeropp/execution/host.hpp>
#include <zeropp/quantizer/block_integer.hpp>
#include <zeropp/quantizer/cast_to.hpp>
#include <zeropp/transport/counting.hpp>

using namespace collective_test;

TEST_CASE("secondary gather on MPI: the forward gather's bits, and not one byte between nodes") {
    const zeropp::block_integer<8, 256> int8;
    const std::size_t n = 1003;
    const std::vector<float> tensor = tensor_of(n, reference::fp32, 1);
    for (const node_map& map : fitting_node_maps()) {
        INFO(map.name);
        const zeropp::two_level nodes = map.topology();
        zeropp::communicator comm(nodes, zeropp::counting(world(), nodes));
        const auto ranks = at(comm.size());
        using secondary_type = zeropp::secondary_partition<zeropp::cast_to<float>, zeropp::host_space>;
        zeropp::workspace<zeropp::host_space> storage(secondary_type::storage_bytes({}, n, comm.group_size()));
        secondary_type secondary({}, n, comm.group_size(), comm.index(), storage.view());
        zeropp::workspace<zeropp::host_space> scratch(zeropp::quantized_all_gather_workspace_bytes(nodes, int8, n));
        std::vector<float> forward(n), backward(n);
        zeropp::quantized_all_gather(zeropp::host{}, comm, int8, reference::slice_of(tensor, ranks, at(comm.rank())),
                                     forward, {}, scratch.view());
        secondary.store(zeropp::host{}, forward, 1);
        comm.world().reset();
        zeropp::secondary_partition_gather(zeropp::host{}, comm, secondary, 1, backward);
        CHECK(difference(forward, reference::gathered(tensor, ranks, described(int8), reference::fp32)) == "");
        CHECK(difference(backward, forward) == "");
        CHECK(comm.world().total().inter_node_bytes == 0);
        CHECK_THROWS_AS(zeropp::secondary_partition_gather(zeropp::host{}, comm, secondary, 2, backward),
                        zeropp::precondition_error);
    }
}
