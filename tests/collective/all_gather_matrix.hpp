#pragma once
/// \file
/// quantized_all_gather over all topologies and sizes, for one element type and quantizer.

#include "collective/ranks.hpp"
#include "support/catch.hpp"

#include <zeropp/codec/host.hpp>
#include <zeropp/collective/quantized_all_gather.hpp>
#include <zeropp/execution/host.hpp>

namespace collective_test {

/// The worst excess of |full - tensor| over what the quantizer promises, in its own terms: the bound for the parameters
/// it fits to each block, and half a spacing of T. Not positive when it keeps its promise.
template <class T, zeropp::bounded_quantizer Q>
double excess_error(const Q& q, const std::vector<float>& tensor, const std::vector<float>& full, std::size_t ranks) {
    double worst = 0;
    for (std::size_t r = 0; r != ranks; ++r) {
        const std::size_t last = reference::slice_begin(tensor.size(), ranks, r + 1);
        for (std::size_t b = reference::slice_begin(tensor.size(), ranks, r); b < last; b += Q::block_size) {
            const std::size_t end = std::min(b + Q::block_size, last);
            typename Q::stats stats;
            for (std::size_t i = b; i != end; ++i) stats.add(tensor[i]);
            const auto params = q.fit(stats);
            for (std::size_t i = b; i != end; ++i) {
                const double bound = static_cast<double>(q.error_bound(tensor[i], params));
                const double off = std::fabs(static_cast<double>(full[i]) - static_cast<double>(tensor[i]));
                worst = std::max(worst, off - bound - format_of<T>.spacing(static_cast<double>(full[i])) / 2);
            }
        }
    }
    return worst;
}

template <class T, class Q>
void check_all_gather(const Q& q, std::size_t salt) {
    const reference::quantizer described_q = described(q);
    for (std::size_t m = 0; m != node_maps().size(); ++m) {
        const node_map& map = node_maps()[m];
        const auto ranks = at(map.ranks());
        for (const std::size_t n : some_counts(Q::block_size, m, salt)) {
            INFO(zeropp::short_text(q.name()).str() << " on " << map.name << ", " << n << " elements");
            const std::vector<float> tensor = tensor_of(n, format_of<T>, n + salt);
            std::vector<std::vector<float>> results(ranks);
            std::vector<char> intact(ranks);
            on_ranks(map.ranks(), "all-gather on " + map.name, [&](zeropp::thread_transport& transport) {
                zeropp::communicator comm(map.topology(), transport);
                const auto r = at(comm.rank());
                const auto shard = narrowed<T>(reference::slice_of(tensor, ranks, r));
                guarded<T> full(n);
                guarded<std::byte> scratch(zeropp::quantized_all_gather_workspace_bytes(comm.topology(), q, n));
                zeropp::quantized_all_gather(zeropp::host{}, comm, q, shard, full.view(), {}, scratch.view());
                results[r] = full.values();
                intact[r] = full.intact() && scratch.intact();
            });
            const std::vector<float> expected = reference::gathered(tensor, ranks, described_q, format_of<T>);
            for (std::size_t r = 0; r != ranks; ++r) {
                INFO("rank " << r);
                REQUIRE(difference(results[r], expected) == "");
                REQUIRE(intact[r]);
            }
            REQUIRE(excess_error<T>(q, tensor, results[0], ranks) <= 0);
        }
    }
}

}  // namespace collective_test
