#pragma once
/// \file
/// Checks of the collectives' results against sums in double and the quantizers' bounds along the route.

#include "support/bounds.hpp"
#include "support/data.hpp"

#include <zeropp/layout/partition.hpp>
#include <zeropp/quantizer/quantizer.hpp>
#include <zeropp/topology/two_level.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace zeropp_bench {

/// Checks the tensor `seed` after an all-gather: each shard of `part` has been quantized by `q`.
template <class T, zeropp::bounded_quantizer Q>
tally check_gathered(const Q& q, std::span<const T> full, const zeropp::partition& part, std::uint64_t seed) {
    tally found;
    for (int r = 0; r != part.ranks(); ++r) {
        const std::size_t offset = part.offset(r);
        found.add(compare_in_pieces<T>(full.subspan(offset, part.size(r)), [&](std::size_t begin, std::size_t n) {
            estimates expected(n);
            fill_exact<T>(expected.exact, seed, offset + begin);
            quantize(q, expected);
            return expected;
        }));
    }
    return found;
}

/// Expected sum of elements [begin, begin + n) of the tensors `first_seed` + c, c < `contributors`, each quantized by
/// `q`.
template <class T, class Accumulator = float, zeropp::bounded_quantizer Q>
estimates expected_sum(const Q& q, int contributors, std::uint64_t first_seed, std::size_t begin, std::size_t n) {
    std::vector<estimates> terms;
    for (int c = 0; c != contributors; ++c) {
        terms.emplace_back(n);
        fill_exact<T>(terms.back().exact, first_seed + static_cast<std::uint64_t>(c), begin);
        quantize(q, terms.back());
    }
    return sum<Accumulator>(terms);
}

/// Expected elements [begin, begin + n) of the two-hop sum of all ranks' tensors; rank r has tensor `first_seed` + r.
template <class T, zeropp::bounded_quantizer IntraNode, zeropp::bounded_quantizer InterNode>
estimates expected_reduction(const IntraNode& intra_node, const InterNode& inter_node, const zeropp::two_level& nodes,
                             std::uint64_t first_seed, std::size_t begin, std::size_t n) {
    const bool intra_node_hop = largest_group_size(nodes) > 1 || nodes.groups() == 1;
    const bool inter_node_hop = nodes.groups() > 1;
    std::vector<estimates> of_nodes;
    for (int g = 0; g != nodes.groups(); ++g) {
        std::vector<estimates> of_ranks;
        for (int i = 0; i != nodes.group_size(g); ++i) {
            of_ranks.emplace_back(n);
            const auto rank = static_cast<std::uint64_t>(nodes.rank_of(g, i));
            fill_exact<T>(of_ranks.back().exact, first_seed + rank, begin);
            if (intra_node_hop) quantize(intra_node, of_ranks.back());
        }
        of_nodes.push_back(sum(of_ranks));
        if (inter_node_hop) quantize(inter_node, of_nodes.back());
    }
    return sum(of_nodes);
}

/// Checks a reduce-scatter: `shard` begins at element `offset` of the two-hop sum.
template <class T, zeropp::bounded_quantizer IntraNode, zeropp::bounded_quantizer InterNode>
tally check_reduced(const IntraNode& intra_node, const InterNode& inter_node, const zeropp::two_level& nodes,
                    std::span<const T> shard, std::size_t offset, std::uint64_t first_seed) {
    return compare_in_pieces<T>(shard, [&](std::size_t begin, std::size_t n) {
        return expected_reduction<T>(intra_node, inter_node, nodes, first_seed, offset + begin, n);
    });
}

/// Checks an all-reduce: the two-hop sum, with each shard quantized by `back` in the all-gather phase.
template <class T, zeropp::bounded_quantizer IntraNode, zeropp::bounded_quantizer InterNode,
          zeropp::bounded_quantizer Back>
tally check_all_reduced(const IntraNode& intra_node, const InterNode& inter_node, const Back& back,
                        const zeropp::two_level& nodes, std::span<const T> full, std::uint64_t first_seed) {
    const zeropp::partition part(full.size(), nodes.size());
    tally found;
    for (int r = 0; r != part.ranks(); ++r) {
        const std::size_t offset = part.offset(r);
        found.add(compare_in_pieces<T>(full.subspan(offset, part.size(r)), [&](std::size_t begin, std::size_t n) {
            estimates expected = expected_reduction<T>(intra_node, inter_node, nodes, first_seed, offset + begin, n);
            quantize(back, expected);
            return expected;
        }));
    }
    return found;
}

}  // namespace zeropp_bench
