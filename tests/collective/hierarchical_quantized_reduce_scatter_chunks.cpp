/// \file
/// hierarchical_quantized_reduce_scatter: the bits depend neither on the number of chunks nor on the execution.

#include "collective/ranks.hpp"
#include "support/catch.hpp"

#include <zeropp/codec/host.hpp>
#include <zeropp/collective/hierarchical_quantized_reduce_scatter.hpp>
#include <zeropp/execution/host.hpp>
#include <zeropp/execution/host_queue.hpp>
#include <zeropp/quantizer/block_integer.hpp>

#include <utility>

using namespace collective_test;

namespace {

/// The results of all chunk counts on `host`, one `host_queue` and two, on each rank.
template <class IntraNode, class InterNode>
void check_chunks(const node_map& map, std::size_t n, const IntraNode& intra_node, const InterNode& inter_node) {
    INFO(map.name << ", " << n << " elements");
    const auto ranks = at(map.ranks());
    const auto fulls = gradients<float>(map.ranks(), n, n), others = gradients<float>(map.ranks(), n, n + 1);
    std::vector<std::vector<std::vector<float>>> results(ranks), other_results(ranks);
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
                // Two behind one another through one workspace.
                guarded<float> shard(size), other(size);
                guarded<std::byte> scratch(bytes);
                for (const auto& [full, to] : {std::pair(&fulls[r], &shard), {&others[r], &other}}) {
                    // An empty shard has no address, as that of an empty vector.
                    const auto out = size == 0 ? zeropp::host_view<float>() : to->view();
                    zeropp::hierarchical_quantized_reduce_scatter(exec, comm, zeropp::hops{intra_node, inter_node},
                                                                  *full, out, options, scratch.view());
                }
                last.wait();
                results[r].push_back(shard.values());
                other_results[r].push_back(other.values());
                intact[r] = intact[r] && shard.intact() && other.intact() && scratch.intact();
            };
            reduce(zeropp::host{}, zeropp::host{});
            reduce(one, one);
            reduce(zeropp::pipeline<zeropp::host_queue>{one, two}, one);
        }
    });
    for (std::size_t r = 0; r != ranks; ++r) {
        const auto expected_of = [&](const auto& tensors) {
            return reference::reduce_scattered(map.node_of_rank, tensors, r, described(intra_node),
                                               described(inter_node), true, {}, reference::fp32);
        };
        const std::vector<float> expected = expected_of(fulls), other_expected = expected_of(others);
        for (std::size_t k = 0; k != results[r].size(); ++k) {
            INFO("rank " << r << ", way " << k);
            REQUIRE(difference(results[r][k], expected) == "");
            REQUIRE(difference(other_results[r][k], other_expected) == "");
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
    constexpr zeropp::block_integer<2, 8> int2;
    node_map map{"4 x 3", {}};
    for (int r = 0; r != 12; ++r) map.node_of_rank.push_back(r / 3);
    check_chunks(map, 121, int2, int2);
}
