/// \file
/// hierarchical_quantized_reduce_scatter: the bits depend neither on the number of chunks nor on the execution.

#include "collective/ranks.hpp"
#include "support/catch.hpp"

#include <zeropp/codec/host.hpp>
#include <zeropp/collective/hierarchical_quantized_reduce_scatter.hpp>
#include <zeropp/execution/host.hpp>
#include <zeropp/execution/host_queue.hpp>
#include <zeropp/quantizer/block_integer.hpp>

using namespace collective_test;

namespace {

/// The results of all chunk counts on `host`, one `host_queue` and two, on each rank.
template <class IntraNode, class InterNode>
void check_chunks(const node_map& map, std::size_t n, const IntraNode& intra_node, const InterNode& inter_node) {
    INFO(map.name << ", " << n << " elements");
    const auto ranks = at(map.ranks());
    const auto fulls = gradients<float>(map.ranks(), n, n);
    std::vector<std::vector<std::vector<float>>> results(ranks);
    std::vector<char> intact(ranks, 1);
    on_ranks(map.ranks(), "chunks on " + map.name, [&](zeropp::thread_transport& transport) {
        zeropp::communicator comm(map.topology(), transport);
        const auto r = at(comm.rank());
        const std::size_t size = reference::slice_of(fulls[r], ranks, r).size();
        const zeropp::host_queue one, two;
        for (const int chunks : {1, 2, 3, 7, 100}) {
            const zeropp::reduce_options options{.operation = zeropp::reduction::mean, .chunks = chunks};
            const std::size_t bytes = zeropp::hierarchical_quantized_reduce_scatter_workspace_bytes(
                comm.topology(), zeropp::hops{intra_node, inter_node}, n, options);
            const auto reduce = [&](const auto& exec, const auto& last) {
                guarded<float> shard(size);
                guarded<std::byte> scratch(bytes);
                // An empty shard has no address, as that of an empty vector.
                const auto out = size == 0 ? zeropp::host_view<float>() : shard.view();
                zeropp::hierarchical_quantized_reduce_scatter(exec, comm, zeropp::hops{intra_node, inter_node},
                                                              fulls[r], out, options, scratch.view());
                last.wait();
                results[r].push_back(shard.values());
                intact[r] = intact[r] && shard.intact() && scratch.intact();
            };
            reduce(zeropp::host{}, zeropp::host{});
            reduce(one, one);
            reduce(zeropp::pipeline<zeropp::host_queue>{one, two}, one);
        }
    });
    for (std::size_t r = 0; r != ranks; ++r) {
        const std::vector<float> expected = reference::reduce_scattered(
            map.node_of_rank, fulls, r, described(intra_node), described(inter_node), true, {}, reference::fp32);
        for (std::size_t k = 0; k != results[r].size(); ++k) {
            INFO("rank " << r << ", way " << k);
            REQUIRE(difference(results[r][k], expected) == "");
        }
        REQUIRE(intact[r]);
    }
}

}  // namespace

TEST_CASE("reduce-scatter: chunks and executions do not show in the bits") {
    const zeropp::block_integer<8, 256> int8;
    const zeropp::block_integer<4, 128, zeropp::signed_absmax, zeropp::half> int4;
    for (const node_map& map : node_maps()) {
        check_chunks(map, 10007, int8, int4);
        check_chunks(map, 4 * 256 + 3, int8, int4);
    }
}

TEST_CASE("reduce-scatter: chunks where some ranks have no slice") {
    // 121 elements on 12 ranks: slices of 11, two blocks of 8, and nothing for the last rank.
    node_map map{"4 x 3", {}};
    for (int r = 0; r != 12; ++r) map.node_of_rank.push_back(r / 3);
    check_chunks(map, 121, zeropp::block_integer<2, 8>{}, zeropp::block_integer<5, 8>{});
}

TEST_CASE("reduce-scatter: two in flight on the same executions stay apart") {
    const zeropp::block_integer<8, 256> int8;
    const node_map& map = node_maps()[2];
    const std::size_t n = 4100;
    const auto first = gradients<float>(4, n, 5);
    const auto second = gradients<float>(4, n, 6);
    std::vector<std::vector<float>> sums(4), others(4);
    on_ranks(4, "two in flight", [&](zeropp::thread_transport& transport) {
        zeropp::communicator comm(map.topology(), transport);
        const auto r = at(comm.rank());
        sums[r] = others[r] = reference::slice_of(first[r], 4, r);
        const zeropp::reduce_options options{.chunks = 3};
        zeropp::workspace<zeropp::host_space> scratch(zeropp::hierarchical_quantized_reduce_scatter_workspace_bytes(
            comm.topology(), zeropp::hops{int8, int8}, n, options));
        const zeropp::host_queue one, two;
        const zeropp::pipeline<zeropp::host_queue> both{one, two};
        // One workspace: what the second call overwrites, the first must have finished with.
        zeropp::hierarchical_quantized_reduce_scatter(both, comm, zeropp::hops{int8, int8}, first[r], sums[r], options,
                                                      scratch.view());
        zeropp::hierarchical_quantized_reduce_scatter(both, comm, zeropp::hops{int8, int8}, second[r], others[r],
                                                      options, scratch.view());
        one.wait();
    });
    for (std::size_t r = 0; r != 4; ++r) {
        for (const bool is_first : {true, false}) {
            const std::vector<float> expected =
                reference::reduce_scattered(map.node_of_rank, is_first ? first : second, r, described(int8),
                                            described(int8), false, {}, reference::fp32);
            REQUIRE(difference(is_first ? sums[r] : others[r], expected) == "");
        }
    }
}
