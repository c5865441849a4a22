#include "simt/collectives.hpp"

#include "kernels/codec_against_host.hpp"
#include "simt/device.hpp"
#include "support/catch.hpp"
#include "support/host_array.hpp"

#include <zeropp/collective/hierarchical_quantized_reduce_scatter.hpp>
#include <zeropp/collective/quantized_all_gather.hpp>
#include <zeropp/collective/quantized_all_to_all.hpp>
#include <zeropp/layout/partition.hpp>
#include <zeropp/topology/three_level.hpp>
#include <zeropp/topology/two_level.hpp>
#include <zeropp/transport/communicator.hpp>

#include <algorithm>
#include <cstddef>
#include <vector>

namespace zeropp_test::simt {
namespace {

using element = zeropp::bfloat16;
const zeropp::block_integer<8, 256> eight_bits;

/// What a rank has received, gathered and reduced.
struct outcome {
    std::vector<element> exchanged;
    std::vector<element> gathered;
    std::vector<element> reduced;
    bool intact = false;
};

/// Runs an all-to-all, a gather and a reduction by `hops` in one scratch. Parts begin off 16-byte boundaries.
template <template <class> class Array, class Pipeline, class Communicator, class Hops>
outcome outcome_of(const Pipeline& exec, Communicator& comm, const Hops& hops) {
    const auto& ranks = comm.topology();
    const auto rank = static_cast<std::size_t>(comm.rank());
    const std::size_t part = 1537;
    const std::size_t n = part * static_cast<std::size_t>(comm.size());
    const zeropp::gather_options in_chunks{.chunks = 3};
    const zeropp::reduce_options mean{.operation = zeropp::reduction::mean, .chunks = 2};
    Array<element> full(tensor<element>(n, rank)), shard(tensor<element>(part, rank, 1));
    Array<element> exchanged(n), gathered(n), reduced(part);
    Array<std::byte> scratch(std::max({quantized_all_to_all_workspace_bytes(ranks, eight_bits, n),
                                       quantized_all_gather_workspace_bytes(ranks, eight_bits, n, in_chunks),
                                       hierarchical_quantized_reduce_scatter_workspace_bytes(ranks, hops, n, mean)}));
    const auto work = scratch.view();
    quantized_all_to_all(exec.intra_node, comm, eight_bits, full.view(), exchanged.view(), work);
    quantized_all_gather(exec, comm, eight_bits, shard.view(), gathered.view(), in_chunks, work);
    hierarchical_quantized_reduce_scatter(exec, comm, hops, full.view(), reduced.view(), mean, work);
    exec.intra_node.wait();
    const bool intact = full.intact() && shard.intact() && exchanged.intact() && gathered.intact() &&
                        reduced.intact() && scratch.intact();
    return {exchanged.read(), gathered.read(), reduced.read(), intact};
}

template <class Topology, class Hops>
void check(const named_ranks<Topology>& ranks, const Hops& hops, const make_transport& make) {
    INFO(ranks.name);
    const auto size = static_cast<std::size_t>(ranks.topology.size());
    std::vector<outcome> expected(size), given(size);
    on_ranks(ranks, "levels on the host", [&](zeropp::thread_transport& world) {
        zeropp::communicator comm(ranks.topology, world);
        const zeropp::host exec;
        expected[static_cast<std::size_t>(comm.rank())] = outcome_of<host_array>(zeropp::pipeline(exec), comm, hops);
    });
    on_ranks(ranks, "levels on the device", [&](zeropp::thread_transport& world) {
        zeropp::communicator comm(ranks.topology, make(world));
        const owned_stream first, second;
        given[static_cast<std::size_t>(comm.rank())] =
            outcome_of<device_array>(zeropp::pipeline(first.exec(), second.exec()), comm, hops);
    });
    for (std::size_t r = 0; r != size; ++r) {
        INFO("rank " << r);
        REQUIRE(difference(given[r].exchanged, expected[r].exchanged) == "");
        REQUIRE(difference(given[r].gathered, expected[r].gathered) == "");
        REQUIRE(difference(given[r].reduced, expected[r].reduced) == "");
        REQUIRE(given[r].intact);
    }
}

}  // namespace

void check_levels(const make_transport& make) {
    const live_objects before = live();
    const zeropp::block_integer<4, 128> four_bits;
    check(ranks_and_nodes{"2 x 2", {2, 2}}, zeropp::hops{eight_bits, four_bits}, make);
    const zeropp::three_level sites(2, 2, 2);
    check(named_ranks<zeropp::three_level>{"2 x 2 x 2", sites}, zeropp::hops{eight_bits, four_bits, four_bits}, make);
    REQUIRE(device_fault() == "");
    REQUIRE(live() == before);
}

}  // namespace zeropp_test::simt
