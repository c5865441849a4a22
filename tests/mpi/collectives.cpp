/// \file
/// Collectives on MPI: the written-down results, messages from two threads, no allocation.

#include "collective/known_results.hpp"
#include "collective/repeated_step.hpp"
#include "support/allocation_count.hpp"
#include "support/catch.hpp"

#include <zeropp/execution/host_queue.hpp>
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
