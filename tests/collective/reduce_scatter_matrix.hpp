#pragma once
/// \file
/// hierarchical_quantized_reduce_scatter over all topologies and sizes, for one element type and pair of quantizers.

#include "collective/ranks.hpp"
#include "support/catch.hpp"

#include <zeropp/codec/host.hpp>
#include <zeropp/collective/hierarchical_quantized_reduce_scatter.hpp>
#include <zeropp/execution/host.hpp>

namespace collective_test {

/// Every rank's tensor.
template <class T>
std::vector<std::vector<float>> gradients(int ranks, std::size_t n, std::uint64_t seed) {
    std::vector<std::vector<float>> fulls;
    for (int r = 0; r != ranks; ++r) fulls.push_back(tensor_of(n, format_of<T>, seed * 64 + at(r)));
    return fulls;
}

template <class T, class IntraNode, class InterNode>
void check_reduce_scatter(const IntraNode& intra_node, const InterNode& inter_node, std::size_t salt) {
    const reference::quantizer first = described(intra_node);
    const reference::quantizer second = described(inter_node);
    for (std::size_t m = 0; m != node_maps().size(); ++m) {
        const node_map& map = node_maps()[m];
        const auto ranks = at(map.ranks());
        for (const std::size_t n : some_counts(m % 2 == 0 ? IntraNode::block_size : InterNode::block_size, m, salt)) {
            // Options change from case to case, so that all of them meet all quantizers.
            const zeropp::reduce_options options{n % 2 == 0 ? zeropp::reduction::sum : zeropp::reduction::mean,
                                                 1 + static_cast<int>((n + m) % 4), (m + salt) % 3 == 0};
            INFO(zeropp::short_text(intra_node.name()).str()
                 << " + " << zeropp::short_text(inter_node.name()).str() << " on " << map.name << ", " << n
                 << " elements, " << options.text(options.chunks).str());
            const auto fulls = gradients<T>(map.ranks(), n, n + salt);
            const std::vector<float> before = tensor_of(n, format_of<T>, 7);
            std::vector<std::vector<float>> results(ranks);
            std::vector<char> intact(ranks);
            on_ranks(map.ranks(), "reduce-scatter on " + map.name, [&](zeropp::thread_transport& transport) {
                zeropp::communicator comm(map.topology(), transport);
                const auto r = at(comm.rank());
                guarded<T> full(n);
                full.fill(narrowed<T>(fulls[r]));
                const std::vector<T> held = narrowed<T>(reference::slice_of(before, ranks, r));
                guarded<T> shard(held.size());
                if (options.accumulate) shard.fill(held);
                guarded<std::byte> scratch(zeropp::hierarchical_quantized_reduce_scatter_workspace_bytes(
                    comm.topology(), zeropp::hops{intra_node, inter_node}, n, options));
                zeropp::hierarchical_quantized_reduce_scatter(zeropp::host{}, comm,
                                                              zeropp::hops{intra_node, inter_node}, full.view(),
                                                              shard.view(), options, scratch.view());
                results[r] = shard.values();
                intact[r] =
                    full.intact() && shard.intact() && scratch.intact() && difference(full.values(), fulls[r]).empty();
            });
            for (std::size_t r = 0; r != ranks; ++r) {
                INFO("rank " << r);
                const auto held = options.accumulate ? reference::slice_of(before, ranks, r) : std::vector<float>();
                const reference::reduced expected =
                    reference::reduce_scattered(map.node_of_rank, fulls, r, first, second,
                                                options.operation == zeropp::reduction::mean, held, format_of<T>);
                REQUIRE(difference(results[r], expected.shard) == "");
                REQUIRE(intact[r]);
                double excess = 0;
                for (std::size_t i = 0; i != expected.shard.size(); ++i) {
                    const double off = std::fabs(static_cast<double>(results[r][i]) - expected.exact[i]);
                    const double rounding = format_of<T>.spacing(expected.exact[i]) + 1e-4;
                    if (std::isfinite(results[r][i])) excess = std::max(excess, off - expected.error[i] - rounding);
                }
                REQUIRE(excess <= 0);
            }
        }
    }
}

}  // namespace collective_test
