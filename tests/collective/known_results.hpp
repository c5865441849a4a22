#pragma once
/// \file
/// Results of the collectives that are written down here, so that every transport is held to the same bits.

#include "collective/ranks.hpp"

#include <zeropp/codec/host.hpp>
#include <zeropp/collective/hierarchical_quantized_reduce_scatter.hpp>
#include <zeropp/collective/quantized_all_gather.hpp>
#include <zeropp/execution/host.hpp>
#include <zeropp/quantizer/block_integer.hpp>

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

namespace collective_test::known {

constexpr std::size_t elements = 4099;
constexpr zeropp::block_integer<8, 256> intra_node;
constexpr zeropp::block_integer<4, 128, zeropp::signed_absmax> inter_node;
constexpr zeropp::reduce_options options{.operation = zeropp::reduction::mean, .chunks = 3};

/// Two ranks on each node where that divides, one elsewhere.
inline node_map nodes(int ranks) {
    node_map map{"known results", {}};
    for (int r = 0; r != ranks; ++r) map.node_of_rank.push_back(ranks % 2 == 0 ? r / 2 : r);
    return map;
}

/// Rank r's gradient; that of rank 0 is also the tensor of weights.
inline std::vector<float> tensor(int rank) {
    return zeropp_test::exact_floats(elements, 12345u + 777u * static_cast<std::uint32_t>(rank));
}

/// FNV-1a over the bits, lowest byte first.
inline std::uint64_t fingerprint(const std::vector<float>& values) {
    std::uint64_t hash = 0xcbf29ce484222325u;
    for (const float x : values) {
        for (int shift = 0; shift != 32; shift += 8) {
            hash = (hash ^ ((zeropp::float_bits(x) >> shift) & 0xffu)) * 0x100000001b3u;
        }
    }
    return hash;
}

struct result {
    std::uint64_t full;    // of the gathered tensor
    std::uint64_t shards;  // of the ranks' reduced shards: the sum of (rank + 1) * fingerprint
};

/// By the number of ranks, from the reference alone.
inline const std::map<int, result>& results() {
    static const std::map<int, result> all{{1, {0x3c0ae7651bdd62f0u, 0x3c0ae7651bdd62f0u}},
                                           {2, {0x9ee7968084949a74u, 0x683dde03d7df85c3u}},
                                           {3, {0xa3e4e812e1f53f4fu, 0x57feccd1b7f03124u}},
                                           {4, {0x4f5ccdfb16d948beu, 0xd4c30f134787ef77u}},
                                           {6, {0xf0b70f261b221dc2u, 0xb51d262d56418404u}}};
    return all;
}

/// This rank's part in `result`, from the library.
template <class Transport>
result of_library(Transport transport) {
    const node_map map = nodes(transport.size());
    zeropp::communicator comm(map.topology(), std::move(transport));
    const auto ranks = at(comm.size());
    const auto r = at(comm.rank());
    std::vector<float> full(elements);
    zeropp::quantized_all_gather(zeropp::host{}, comm, intra_node, reference::slice_of(tensor(0), ranks, r), full);
    std::vector<float> shard = reference::slice_of(full, ranks, r);
    zeropp::hierarchical_quantized_reduce_scatter(zeropp::host{}, comm, zeropp::hops{intra_node, inter_node},
                                                  tensor(comm.rank()), shard, options);
    return {fingerprint(full), (r + 1) * fingerprint(shard)};
}

}  // namespace collective_test::known
