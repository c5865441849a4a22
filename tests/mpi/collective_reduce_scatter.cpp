/// \file
/// hierarchical_quantized_reduce_scatter on MPI: the reference's bits in any number of chunks, on all executions.

#include "collective/mpi_ranks.hpp"
#include "support/catch.hpp"

#include <zeropp/codec/host.hpp>
#include <zeropp/collective/hierarchical_quantized_reduce_scatter.hpp>
#include <zeropp/execution/host.hpp>
#include <zeropp/execution/host_queue.hpp>
#include <zeropp/quantizer/block_integer.hpp>
#include <zeropp/quantizer/cast_to.hpp>

using namespace collective_test;

namespace {

template <class T, class IntraNode, class InterNode>
void check_reduce_scatter(const IntraNode& intra_node, const InterNode& inter_node) {
    for (const node_map& map : fitting_node_maps()) {
        for (const std::size_t n : {0u, 1u, 127u, 1027u, 10007u}) {
            zeropp::communicator comm(map.topology(), world());
            std::vector<std::vector<float>> fulls;
            for (int r = 0; r != comm.size(); ++r) fulls.push_back(tensor_of(n, format_of<T>, n + at(r)));
            const auto r = at(comm.rank());
            const reference::reduced expected = reference::reduce_scattered(
                map.node_of_rank, fulls, r, described(intra_node), described(inter_node), true, {}, format_of<T>);
            const std::vector<T> full = narrowed<T>(fulls[r]);
            const zeropp::host_queue one, two;
            for (const int chunks : {1, 3, 100}) {
                const zeropp::reduce_options options{.operation = zeropp::reduction::mean, .chunks = chunks};
                const std::size_t bytes = zeropp::hierarchical_quantized_reduce_scatter_workspace_bytes(
                    comm.topology(), zeropp::hops{intra_node, inter_node}, n, options);
                const auto check = [&](const auto& exec, const auto& last) {
                    INFO(map.name << ", " << n << " elements, chunks " << chunks);
                    guarded<T> shard(expected.shard.size());
                    guarded<std::byte> scratch(bytes);
                    zeropp::hierarchical_quantized_reduce_scatter(exec, comm, zeropp::hops{intra_node, inter_node},
                                                                  full, shard.view(), options, scratch.view());
                    last.wait();
                    CHECK(difference(shard.values(), expected.shard) == "");
                    CHECK(shard.intact());
                    CHECK(scratch.intact());
                };
                check(zeropp::host{}, zeropp::host{});
                check(one, one);
                check(zeropp::pipeline<zeropp::host_queue>{one, two}, one);
            }
        }
    }
}

}  // namespace

TEST_CASE("reduce-scatter on MPI: bits of the reference") {
    check_reduce_scatter<float>(zeropp::block_integer<8, 256>{},
                                zeropp::block_integer<4, 128, zeropp::signed_absmax, zeropp::half>{});
    check_reduce_scatter<zeropp::bfloat16>(zeropp::cast_to<float>{}, zeropp::block_integer<6, 128>{});
}
