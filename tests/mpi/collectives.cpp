/// \file
/// Collectives on MPI: the written-down results, messages from two threads, broadcasts of owners, no allocation.

#include "collective/differences.hpp"
#include "collective/known_results.hpp"
#include "collective/repeated_step.hpp"
#include "support/allocation_count.hpp"
#include "support/catch.hpp"

#include <zeropp/execution/host_queue.hpp>
#include <zeropp/transport/checked.hpp>
#include <zeropp/transport/counting.hpp>
#include <zeropp/transport/mpi.hpp>

#include <mpi.h>

using namespace collective_test;
using zeropp::host;

namespace {

int world_size() {
    int size = 0;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    return size;
}

/// The maps that fit the ranks of this run; with none in the list, one node and one rank on each.
std::vector<node_map> fitting_node_maps() {
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

zeropp::mpi_transport world() { return zeropp::mpi_transport::duplicate(MPI_COMM_WORLD); }

}  // namespace

TEST_CASE("collectives on MPI: the written-down results, which ranks on threads have too") {
    REQUIRE(known::results().contains(world_size()));
    const known::result expected = known::results().at(world_size());
    const known::result given = known::of_library(world());
    CHECK(given.full == expected.full);
    std::uint64_t shards = 0;
    MPI_Allreduce(&given.shards, &shards, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
    CHECK(shards == expected.shards);
}

TEST_CASE("collectives on MPI: chunks on two threads of each rank have the reference's bits") {
    constexpr std::size_t n = 10007;
    for (const node_map& map : fitting_node_maps()) {
        INFO(map.name);
        zeropp::communicator comm(map.topology(), world());
        const auto ranks = at(comm.size()), r = at(comm.rank());
        std::vector<std::vector<float>> fulls;
        for (std::size_t of = 0; of != ranks; ++of) fulls.push_back(tensor_of(n, reference::fp32, n + of));
        const auto int8 = described(known::intra_node);
        const auto expected = reference::reduce_scattered(map.node_of_rank, fulls, r, int8,
                                                          described(known::inter_node), true, {}, reference::fp32);
        const zeropp::host_queue intra_node, inter_node;
        const zeropp::pipeline<zeropp::host_queue> both{intra_node, inter_node};
        guarded<float> full(n), shard(expected.size());
        zeropp::quantized_all_gather(both, comm, known::intra_node, reference::slice_of(fulls[0], ranks, r),
                                     full.view(), {.chunks = 3});
        zeropp::hierarchical_quantized_reduce_scatter(both, comm, zeropp::hops{known::intra_node, known::inter_node},
                                                      fulls[r], shard.view(), known::options);
        intra_node.wait();
        CHECK(difference(full.values(), reference::gathered(fulls[0], ranks, int8, reference::fp32)) == "");
        CHECK(difference(shard.values(), expected) == "");
        CHECK(full.intact());
        CHECK(shard.intact());
    }
}

TEST_CASE("collectives on MPI: one rank's mistake is every rank's error when checked") {
    zeropp::communicator comm(fitting_node_maps()[0].topology(), zeropp::checked(world()));
    std::vector<float> full(96);
    std::vector<float> shard(zeropp::partition(96, comm.size()).size(comm.rank()));
    const int last = comm.size() - 1;
    if (comm.rank() == last) shard.push_back(0);
    std::string error;
    try {
        zeropp::quantized_all_gather(host{}, comm, known::intra_node, shard, full);
    } catch (const zeropp::precondition_error& e) {
        error = e.what();
    }
    CHECK(error.find("on rank " + std::to_string(last) + ", expected a shard of") != std::string::npos);
    if (comm.rank() == last) shard.pop_back();
    zeropp::quantized_all_gather(host{}, comm, known::intra_node, shard, full);
}

TEST_CASE("collectives on MPI: a secondary gather sends not one byte between nodes") {
    constexpr std::size_t n = 1003;
    const std::vector<float> tensor = tensor_of(n, reference::fp32, 1);
    for (const node_map& map : fitting_node_maps()) {
        INFO(map.name);
        const zeropp::two_level nodes = map.topology();
        zeropp::communicator comm(nodes, zeropp::counting(world(), nodes));
        using secondary_type = zeropp::secondary_partition<zeropp::cast_to<float>, zeropp::host_space>;
        zeropp::workspace<zeropp::host_space> storage(secondary_type::storage_bytes({}, n, comm.group_size()));
        secondary_type secondary({}, n, comm.group_size(), comm.index(), storage.view());
        std::vector<float> backward(n);
        secondary.store(host{}, tensor, 1);
        zeropp::secondary_partition_gather(host{}, comm, secondary, 1, backward);
        CHECK(difference(backward, tensor) == "");
        CHECK(comm.world().total().inter_node_bytes == 0);
    }
}

TEST_CASE("collectives on MPI: what the first nodes own reaches all") {
    constexpr std::size_t n = 1003;
    constexpr auto int8 = known::intra_node;
    for (const node_map& map : fitting_node_maps()) {
        const zeropp::two_level nodes = map.topology();
        for (int first_groups = 1; first_groups <= nodes.groups(); ++first_groups) {
            if (!can_own(nodes, first_groups)) continue;
            INFO(map.name << ", the first " << first_groups << " groups");
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
            zeropp::quantized_update(host{}, comm, int8, shard(first), replica.to(1));
            zeropp::quantized_update(host{}, comm, int8, shard(second), replica.to(2, full));
            CHECK(difference(full, updated<float>(second, first, ranks, int8)) == "");
            zeropp::secondary_partition_gather(host{}, comm, replica, 2, full);
            CHECK(difference(full, updated<float>(second, first, ranks, int8)) == "");
        }
    }
}

TEST_CASE("collectives on MPI allocate nothing after the first step") {
    if (!zeropp_test::counts_allocations()) {
        WARN("skipped: allocations cannot be counted here");
        return;
    }
    for (const node_map& map : fitting_node_maps()) {
        INFO(map.name);
        zeropp::communicator comm(map.topology(), world());
        const host exec;
        repeated_step step(comm);
        step.enqueue(zeropp::pipeline<host>{exec, exec}, 0);
        const std::size_t before = zeropp_test::allocation_count;
        for (std::uint64_t s = 1; s != 4; ++s) step.enqueue(zeropp::pipeline<host>{exec, exec}, s);
        CHECK(zeropp_test::allocation_count == before);
    }
}
