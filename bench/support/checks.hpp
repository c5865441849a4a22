#pragma once
/// \file
/// Checks of the collectives' results against sums in double and the quantizers' bounds along the route.

#include "support/bounds.hpp"
#include "support/data.hpp"

#include <zeropp/layout/partition.hpp>
#include <zeropp/quantizer/cast_to.hpp>
#include <zeropp/quantizer/hops.hpp>
#include <zeropp/quantizer/quantizer.hpp>
#include <zeropp/topology/columns.hpp>
#include <zeropp/topology/topology.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace zeropp_bench {

/// Compares a tensor in pieces of its shards. expected(begin, n) returns the estimates for elements [begin, begin + n).
template <class T, class Expected>
tally compare_by_shard(std::span<const T> full, const zeropp::partition& part, Expected expected) {
    tally found;
    for (int r = 0; r != part.ranks(); ++r) {
        const std::size_t offset = part.offset(r);
        found.add(compare_in_pieces<T>(full.subspan(offset, part.size(r)),
                                       [&](std::size_t begin, std::size_t n) { return expected(offset + begin, n); }));
    }
    return found;
}

/// Expected elements [begin, begin + n) of the tensor `seed`, quantized by `q`.
template <class T, zeropp::bounded_quantizer Q>
estimates expected_of(const Q& q, std::uint64_t seed, std::size_t begin, std::size_t n) {
    estimates expected(n);
    fill_exact<T>(expected.exact, seed, begin);
    quantize(q, expected);
    return expected;
}

/// Checks the tensor `seed` after an all-gather: each shard of `part` has been quantized by `q`.
template <class T, zeropp::bounded_quantizer Q>
tally check_gathered(const Q& q, std::span<const T> full, const zeropp::partition& part, std::uint64_t seed) {
    return compare_by_shard<T>(full, part,
                               [&](std::size_t begin, std::size_t n) { return expected_of<T>(q, seed, begin, n); });
}

/// Checks the parts that rank `rank` has received in an all-to-all, quantized by `q`; rank r has sent the tensor
/// `first_seed` + r.
template <class T, zeropp::bounded_quantizer Q>
tally check_exchanged(const Q& q, std::span<const T> received, const zeropp::partition& part, int rank,
                      std::uint64_t first_seed) {
    const std::size_t each = part.slice_size();
    return compare_by_shard<T>(received, part, [&](std::size_t begin, std::size_t n) {
        const std::size_t sender = begin / each;
        return expected_of<T>(q, first_seed + sender, part.offset(rank) + begin - sender * each, n);
    });
}

/// Expected sum of elements [begin, begin + n) of the tensors `first_seed` + c, c < `contributors`, each quantized by
/// `q`.
template <class T, class Accumulator = float, zeropp::bounded_quantizer Q>
estimates expected_sum(const Q& q, int contributors, std::uint64_t first_seed, std::size_t begin, std::size_t n) {
    std::vector<estimates> terms;
    for (int c = 0; c != contributors; ++c) {
        terms.push_back(expected_of<T>(q, first_seed + static_cast<std::uint64_t>(c), begin, n));
    }
    return sum<Accumulator>(terms);
}

/// Expected elements [begin, begin + n) of the sum along the first `Levels` levels, on `rank`; rank r has tensor
/// `first_seed` + r.
template <class T, int Levels, class Hops, zeropp::topology Topology>
estimates expected_reduction(const Hops& by_level, const Topology& ranks, std::uint64_t first_seed, std::size_t begin,
                             std::size_t n, int rank = 0) {
    if constexpr (Levels == 0) {
        return expected_of<T>(zeropp::cast_to<float>(), first_seed + static_cast<std::uint64_t>(rank), begin, n);
    } else {
        std::vector<estimates> terms;
        for (const int peer : zeropp::peer_ranks(ranks, Levels - 1, rank)) {
            terms.push_back(expected_reduction<T, Levels - 1>(by_level, ranks, first_seed, begin, n, peer));
            if (zeropp::has_hop(ranks, Levels - 1)) quantize(by_level.at(zeropp::level<Levels - 1>), terms.back());
        }
        return sum(terms);
    }
}

/// Checks a reduce-scatter: `shard` begins at element `offset` of the sum.
template <class T, class Hops, zeropp::topology Topology>
tally check_reduced(const Hops& by_level, const Topology& ranks, std::span<const T> shard, std::size_t offset,
                    std::uint64_t first_seed) {
    return compare_in_pieces<T>(shard, [&](std::size_t begin, std::size_t n) {
        return expected_reduction<T, Topology::levels>(by_level, ranks, first_seed, offset + begin, n);
    });
}

/// Checks an all-reduce: the sum, with each shard quantized by the last quantizer in the all-gather phase.
template <class T, class Hops, zeropp::topology Topology>
tally check_all_reduced(const Hops& by_level, const Topology& ranks, std::span<const T> full,
                        std::uint64_t first_seed) {
    const zeropp::partition part(full.size(), ranks.size());
    return compare_by_shard<T>(full, part, [&](std::size_t begin, std::size_t n) {
        estimates expected = expected_reduction<T, Topology::levels>(by_level, ranks, first_seed, begin, n);
        quantize(by_level.last(), expected);
        return expected;
    });
}

}  // namespace zeropp_bench
