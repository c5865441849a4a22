#pragma once
/// \file
/// Copies of weights and of shards: which rank holds which elements, and where the elements lie in its memory.

#include <zeropp/codec/codec.hpp>
#include <zeropp/collective/secondary_partition.hpp>
#include <zeropp/collective/secondary_replica.hpp>
#include <zeropp/core/workspace.hpp>
#include <zeropp/elastic/partners.hpp>
#include <zeropp/elastic/shard_mirror.hpp>
#include <zeropp/elastic/survivors.hpp>
#include <zeropp/execution/execution.hpp>
#include <zeropp/layout/divided.hpp>
#include <zeropp/layout/slices.hpp>
#include <zeropp/layout/tensor_list.hpp>
#include <zeropp/quantizer/quantizer.hpp>
#include <zeropp/topology/columns.hpp>
#include <zeropp/topology/topology.hpp>

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace zeropp::detail {

/// A quantizer that stores elements unquantized, in its own element type.
template <class Q>
concept stores_own_elements = quantizer<Q> && stores_elements<Q, typename Q::element_type>;

/// Element type in which stored weights move to other ranks: of Q if Q stores elements. Otherwise T, to which the
/// sender decodes.
template <quantizer Q, class T>
struct moved_element {
    using type = T;
};
template <stores_own_elements Q, class T>
struct moved_element<Q, T> {
    using type = typename Q::element_type;
};

/// Copies of the weights in secondary partitions, over the topology `before`: each group holds one copy, in one message
/// on each rank.
template <quantizer Q, class Space, topology Topology, class Tensors>
std::vector<held_copy> copies_of(const secondary_partition<Q, Space>&, const Topology& before, const Tensors& tensors) {
    std::vector<held_copy> copies;
    for (int g = 0; g != before.groups(); ++g) {
        held_copy copy{segments_over(tensors, before.group_size(g)), {}};
        for (int i = 0; i != before.group_size(g); ++i) copy.holders.push_back(before.rank_of(g, i));
        copies.push_back(std::move(copy));
    }
    return copies;
}

/// Copies of all ranks' shards, of the division `segments` over `ranks` ranks. for_each_kept(rank, f) calls f(owner)
/// for each shard that `rank` keeps. The holder of a shard in the c-th copy is the c-th rank that keeps it.
template <class ForEachKept>
std::vector<held_copy> copies_of_shards(const std::vector<segment>& segments, int ranks, ForEachKept for_each_kept) {
    std::vector<held_copy> copies;
    for (int rank = 0; rank != ranks; ++rank) {
        for_each_kept(rank, [&](int owner) {
            std::size_t c = 0;
            while (c != copies.size() && copies[c].holders[static_cast<std::size_t>(owner)] >= 0) ++c;
            if (c == copies.size()) copies.push_back({segments, std::vector<int>(static_cast<std::size_t>(ranks), -1)});
            copies[c].holders[static_cast<std::size_t>(owner)] = rank;
        });
    }
    return copies;
}

/// Copies of the weights in secondary replicas, over the topology `before`: each group holds one copy.
template <quantizer Exact, class Space, quantizer IntraNode, topology Topology, class Tensors>
std::vector<held_copy> copies_of(const secondary_replica<Exact, Space, IntraNode>&, const Topology& before,
                                 const Tensors& tensors) {
    return copies_of_shards(segments_over(tensors, before.size()), before.size(), [&](int rank, auto f) {
        for_each_served(before, rank, [&](int, int owner) { f(owner); });
    });
}

/// Copies of shards in mirrors, over the topology `before`: each partner node of a shard's owner holds one copy of that
/// shard.
template <quantizer Q, class Space, topology Topology, class Tensors>
std::vector<held_copy> copies_of(const shard_mirror<Q, Space>&, const Topology& before, const Tensors& tensors) {
    return copies_of_shards(segments_over(tensors, before.size()), before.size(), [&](int rank, auto f) {
        for (const mirrored_shard& kept : mirrored_by(before, rank)) f(kept.owner);
    });
}

/// Why `copies` were not made for `rank` of the topology `before`, or lack shards of some ranks. As "expected ...,
/// given ..."; empty if neither.
template <class Copies, topology Topology>
std::string copies_problem(const Copies& copies, const Topology& before, int rank) {
    std::string problem = copies.place_problem(before, rank);
    if constexpr (requires { copies.owners(); }) {
        if (problem.empty() && copies.owners().size() != before.size()) {
            problem = "expected a replica of the shards of all " + std::to_string(before.size()) +
                      " ranks, given one of " + std::to_string(copies.owners().size());
        }
    }
    return problem;
}

/// Returns a function that takes a recovered_piece, and returns the address of its first element on this rank. If the
/// messages of `kept` hold elements, pieces lie in these messages. Otherwise this decodes all messages to `decoded`,
/// where pieces then lie, and blocks.
template <class Moved, execution Execution, class Kept, class Tensors>
auto stored_elements(const Execution& exec, const Kept& kept, const Tensors& tensors,
                     workspace<typename Execution::space>& decoded) {
    using space = typename Execution::space;
    using Q = typename Kept::stored_quantizer;
    std::vector<segment> segments = segments_over(tensors, kept.over().count);
    std::vector<int> owners = kept.kept_owners();
    const Moved* first = reinterpret_cast<const Moved*>(kept.message());
    std::size_t stride = kept.message_bytes() / sizeof(Moved);
    if constexpr (!stores_own_elements<Q>) {
        stride = segments.back().place.elements + segments.back().part.slice_size();
        decoded = workspace<space>(owners.size() * stride * sizeof(Moved));
        auto* const to = reinterpret_cast<Moved*>(decoded.view().data());
        std::vector<Moved*> parts;
        for (std::size_t i = 0; i != owners.size(); ++i) {
            for (const segment& s : segments) parts.push_back(to + i * stride + s.place.elements);
        }
        workspace<space> table = resident<space>(joined_bytes(std::span(segments), std::span(parts)));
        auto* const there = reinterpret_cast<const segment*>(table.view().data());
        auto* const parts_there = reinterpret_cast<Moved* const*>(there + segments.size());
        const list_division whole(segments, there, 0, 0);
        const auto all = list_chunks(whole, 1, static_cast<std::size_t>(Q::block_size))[0];
        for (std::size_t i = 0; i != owners.size(); ++i) {
            codec<Execution>::read(exec, one_message{kept.stored_as(), kept.message(static_cast<int>(i))},
                                   all.in_own(owners[i]), tensor_table<Moved>{parts_there + i * segments.size()});
        }
        exec.wait();
        first = to;
    }
    return [segments = std::move(segments), owners = std::move(owners), first, stride](const recovered_piece& p) {
        const segment& s = segments[p.tensor];
        const int owner = static_cast<int>(p.begin / s.part.slice_size());
        const auto i = static_cast<std::size_t>(std::ranges::find(owners, owner) - owners.begin());
        return first + i * stride + s.place.elements + (p.begin - s.part.offset(owner));
    };
}

}  // namespace zeropp::detail
