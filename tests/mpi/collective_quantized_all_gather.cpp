/// \file
/// quantized_all_gather on MPI: the reference's bits, and those of ranks on threads.

#include "collective/known_results.hpp"
#include "collective/mpi_ranks.hpp"
#include "support/catch.hpp"

#include <zeropp/execution/host_queue.hpp>
#include <zeropp/transport/checked.hpp>

using namespace collective_test;

namespace {

template <class T, class Q>
void check_all_gather(const Q& q) {
    for (const node_map& map : fitting_node_maps()) {
        for (const std::size_t n : {0u, 1u, 127u, 257u, 10007u}) {
            INFO(zeropp::short_text(q.name()).str() << " on " << map.name << ", " << n << " elements");
            zeropp::communicator comm(map.topology(), world());
            const std::vector<float> tensor = tensor_of(n, format_of<T>, n);
            const auto ranks = at(comm.size());
            const auto shard = narrowed<T>(reference::slice_of(tensor, ranks, at(comm.rank())));
            const std::vector<float> expected = reference::gathered(tensor, ranks, described(q), format_of<T>);
            guarded<T> full(n), again(n), chunked(n);
            guarded<std::byte> scratch(zeropp::quantized_all_gather_workspace_bytes(comm.topology(), q, n));
            zeropp::quantized_all_gather(zeropp::host{}, comm, q, shard, full.view(), {}, scratch.view());
            const zeropp::host_queue queue;
            zeropp::quantized_all_gather(queue, comm, q, shard, again.view());
            const zeropp::gather_options in_chunks{.chunks = 3};
            guarded<std::byte> more(zeropp::quantized_all_gather_workspace_bytes(comm.topology(), q, n, in_chunks));
            const zeropp::host_queue inter_node;
            zeropp::quantized_all_gather(zeropp::pipeline<zeropp::host_queue>{queue, inter_node}, comm, q, shard,
                                         chunked.view(), in_chunks, more.view());
            queue.wait();
            CHECK(difference(full.values(), expected) == "");
            CHECK(difference(again.values(), expected) == "");
            CHECK(difference(chunked.values(), expected) == "");
            CHECK(full.intact());
            CHECK(again.intact());
            CHECK(chunked.intact());
            CHECK(more.intact());
            CHECK(scratch.intact());
        }
    }
}

}  // namespace

TEST_CASE("all-gather on MPI: bits of the reference") {
    check_all_gather<float>(zeropp::block_integer<8, 256>{});
    check_all_gather<zeropp::half>(zeropp::block_integer<4, 128, zeropp::asymmetric, zeropp::half>{});
    check_all_gather<float24>(zeropp::block_integer<5, 64>{});
}

TEST_CASE("collectives on MPI: the written-down results, which ranks on threads have too") {
    REQUIRE(known::results().contains(world_size()));
    const known::result expected = known::results().at(world_size());
    const known::result given = known::of_library(world());
    CHECK(given.full == expected.full);
    std::uint64_t shards = 0;
    MPI_Allreduce(&given.shards, &shards, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
    CHECK(shards == expected.shards);
}

TEST_CASE("collectives on MPI: one rank's mistake is every rank's error when checked") {
    zeropp::communicator comm(fitting_node_maps()[0].topology(), zeropp::checked(world()));
    std::vector<float> full(96);
    std::vector<float> shard(zeropp::partition(96, comm.size()).size(comm.rank()));
    const int last = comm.size() - 1;
    if (comm.rank() == last) shard.push_back(0);
    std::string error;
    try {
        zeropp::quantized_all_gather(zeropp::host{}, comm, known::intra_node, shard, full);
    } catch (const zeropp::precondition_error& e) {
        error = e.what();
    }
    CHECK(error.find("on rank " + std::to_string(last) + ", expected a shard of") != std::string::npos);
    if (comm.rank() == last) shard.pop_back();
    zeropp::quantized_all_gather(zeropp::host{}, comm, known::intra_node, shard, full);
}
