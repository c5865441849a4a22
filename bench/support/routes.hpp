#pragma once
/// \file
/// Routes of the collectives, hop by hop.

#include "support/ranks.hpp"

#include <zeropp/layout/chunking.hpp>
#include <zeropp/layout/wire_layout.hpp>
#include <zeropp/quantizer/hops.hpp>
#include <zeropp/quantizer/quantizer.hpp>
#include <zeropp/topology/columns.hpp>
#include <zeropp/topology/topology.hpp>

#include <array>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

namespace zeropp_bench {

/// The message of a shard, in all its chunks.
struct message_size {
    std::size_t bytes;
    std::size_t elements;

    message_size operator*(int times) const {
        return {static_cast<std::size_t>(times) * bytes, static_cast<std::size_t>(times) * elements};
    }
};

/// The message of the shard that `cut` divides. Chunks change only the padding.
template <zeropp::quantizer Q>
message_size message_of(const Q& q, const zeropp::chunking& cut) {
    message_size message{0, cut.size};
    for (std::size_t c = 0; c != cut.chunks; ++c) message.bytes += zeropp::wire_bytes(q, cut.count(c));
    return message;
}

/// The message of a shard of `shard` elements on each hop, in `chunks` chunks or `auto_chunks`: by each quantizer.
template <zeropp::topology Topology, zeropp::quantizer... Q>
std::array<message_size, sizeof...(Q)> messages_of(const zeropp::hops<Q...>& quantizers, const Topology& ranks,
                                                   std::size_t shard, int chunks) {
    const int cuts = zeropp::detail::chunks_for(chunks, ranks, zeropp::wire_bytes(quantizers.last(), shard), true);
    const zeropp::chunking cut(shard, cuts, static_cast<std::size_t>(zeropp::hops<Q...>::largest_block));
    std::array<message_size, sizeof...(Q)> all;
    std::size_t hop = 0;
    quantizers.for_each([&](const auto& q) { all[hop++] = message_of(q, cut); });
    return all;
}

/// Adds a hop along `level`, unless it would connect one rank.
template <zeropp::topology Topology>
void add_hop(route& hops, const Topology& ranks, int rank, int level, hop::pattern what, const message_size& to_each) {
    std::vector<int> members = zeropp::peer_ranks(ranks, level, rank);
    if (members.size() > 1) hops.push_back({level, what, std::move(members), to_each.bytes, to_each.elements});
}

/// Adds an all-gather: from the last level on, each rank sends all that it has so far, at first its `own` message.
template <zeropp::topology Topology>
void add_gather(route& hops, const Topology& ranks, int rank, message_size own) {
    for (int l = Topology::levels; l-- > 0;) {
        add_hop(hops, ranks, rank, l, hop::pattern::all_gather, own);
        own = own * zeropp::extent(ranks, l);
    }
}

/// Adds a reduce-scatter: from level 0 on, each peer gets the sums for itself and for the ranks of its coordinate
/// along later levels. `shard` is the message of a shard by level.
template <zeropp::topology Topology>
void add_reduction(route& hops, const Topology& ranks, int rank, std::span<const message_size> shard) {
    int shards = ranks.size();
    for (int l = 0; l != Topology::levels; ++l) {
        shards /= zeropp::extent(ranks, l);
        add_hop(hops, ranks, rank, l, hop::pattern::all_to_all, shard[static_cast<std::size_t>(l)] * shards);
    }
}

/// Adds an all-to-all: along each level, each peer gets as many parts as ranks share its coordinate of the level.
template <zeropp::topology Topology>
void add_all_to_all(route& hops, const Topology& ranks, int rank, const message_size& part) {
    for (int l = 0; l != Topology::levels; ++l) {
        add_hop(hops, ranks, rank, l, hop::pattern::all_to_all, part * (ranks.size() / zeropp::extent(ranks, l)));
    }
}

}  // namespace zeropp_bench
