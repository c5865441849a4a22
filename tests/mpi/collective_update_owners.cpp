/// \file
/// Updates on MPI of what some nodes own and others hold.

#include "collective/differences.hpp"
#include "collective/mpi_ranks.hpp"
#include "support/catch.hpp"

#include <zeropp/codec/host.hpp>
#include <zeropp/collective/quantized_update.hpp>
#include <zeropp/collective/secondary_partition_gather.hpp>
#include <zeropp/execution/host.hpp>
#include <zeropp/quantizer/block_integer.hpp>
#include <zeropp/quantizer/cast_to.hpp>
#include <zeropp/transport/checked.hpp>

using namespace collective_test;

TEST_CASE("updates on MPI: what the first nodes own reaches all") {
    const zeropp::block_integer<8, 64> int8;
    for (const std::size_t n : {std::size_t{1}, std::size_t{1003}}) {
        for (const node_map& map : fitting_node_maps()) {
            const zeropp::two_level nodes = map.topology();
            for (int first_groups = 1; first_groups <= nodes.groups(); ++first_groups) {
                if (!can_own(nodes, first_groups)) continue;
                INFO(map.name << ", " << n << " elements, the first " << first_groups << " groups");
                const owning of(map, first_groups);
                const std::size_t ranks = of.ranks.size();
                const zeropp::shard_owners owners(nodes, first_groups);
                zeropp::communicator comm(nodes, zeropp::checked(world()));
                using replica_type = zeropp::secondary_replica<zeropp::cast_to<float>, zeropp::host_space>;
                zeropp::workspace<zeropp::host_space> storage(replica_type::storage_bytes(owners, n));
                replica_type replica(owners, comm.rank(), n, storage.view());
                const std::vector<float> first = tensor_of(n, reference::fp32, 1), second = walked(first, 1);
                const auto shard = [&](const std::vector<float>& weights) {
                    return of.slice_of(comm.rank(),
                                       [&](std::size_t place) { return reference::slice_of(weights, ranks, place); });
                };
                std::vector<float> full(n);
                zeropp::quantized_update(zeropp::host{}, comm, int8, shard(first), replica.to(1));
                zeropp::quantized_update(zeropp::host{}, comm, int8, shard(second), replica.to(2, full));
                CHECK(difference(full, updated<float>(second, first, ranks, int8)) == "");
                zeropp::secondary_partition_gather(zeropp::host{}, comm, replica, 2, full);
                CHECK(difference(full, updated<float>(second, first, ranks, int8)) == "");
            }
        }
    }
}
