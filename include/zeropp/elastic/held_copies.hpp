#pragma once
/// \file
/// Copies of weights and of shards that ranks hold: who holds which elements, and where they lie in a rank's memory.

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
#include <zeropp/topology/shard_owners.hpp>
#include <zeropp/topology/topology.hpp>

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace zeropp::detail {

/// True if Q stores elements of its own type.
template <quantizer Q>
inline constexpr bool stores_own_elements = false;
template <quantizer Q>
    requires stores_elements<Q, typename Q::element_type>
inline constexpr bool stores_own_elements<Q> = true;

/// Type in which stored weights move: their own if elements are stored, otherwise T, to which the owner decodes them.
template <class Secondary, class T>
struct moved_element {
    using type = T;
};
template <quantizer Q, class Space, class T>
    requires stores_own_elements<Q>
struct moved_element<secondary_partition<Q, Space>, T> {
    using type = typename Q::element_type;
};
template <quantizer Q, class Space, class T>
    requires stores_own_elements<Q>
struct moved_element<shard_mirror<Q, Space>, T> {
    using type = typename Q::element_type;
};
template <quantizer Exact, class Space, quantizer IntraNode, class T>
struct moved_element<secondary_replica<Exact, Space, IntraNode>, T> {
    using type = typename Exact::element_type;
};

/// Copies of a secondary partition: one in each group. Elements lie in one message.
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

/// Copies of a secondary replica: one in each group. The rank that serves a column keeps the shards of its owners.
template <quantizer Exact, class Space, quantizer IntraNode, topology Topology, class Tensors>
std::vector<held_copy> copies_of(const secondary_replica<Exact, Space, IntraNode>& replica, const Topology& before,
                                 const Tensors& tensors) {
    const shard_owners& owners = replica.owners();
    std::vector<held_copy> copies;
    for (int g = 0; g != before.groups(); ++g) copies.push_back({segments_over(tensors, owners.size()), {}});
    for (int owner = 0; owner != owners.size(); ++owner) {
        const std::vector<int> members = column_ranks(before, owners.index_of(owner));
        for (std::size_t g = 0; g != copies.size(); ++g) copies[g].holders.push_back(members[g]);
    }
    return copies;
}

/// Copies of shards in mirrors: one in each partner node.
template <quantizer Q, class Space, topology Topology, class Tensors>
std::vector<held_copy> copies_of(const shard_mirror<Q, Space>&, const Topology& before, const Tensors& tensors) {
    const auto ranks = static_cast<std::size_t>(before.size());
    const held_copy none{segments_over(tensors, before.size()), std::vector<int>(ranks, -1)};
    std::vector<held_copy> copies(2, none);
    for (int rank = 0; rank != before.size(); ++rank) {
        for (const mirrored_shard& kept : mirrored_by(before, rank)) {
            const auto owner = static_cast<std::size_t>(kept.owner);
            copies[copies[0].holders[owner] < 0 ? 0 : 1].holders[owner] = rank;
        }
    }
    return copies;
}

/// Why copies are not of `rank` of `before`, or not of all shards, as "expected ..., given ..."; empty if they are.
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

/// Addresses of pieces in `messages` of `bytes` bytes, of which message i has the shards of owners[i] in `segments`; or
/// in `decoded`, to which they are decoded unless Q stores elements.
template <class Moved, execution Execution, quantizer Q>
auto elements_of_messages(const Execution& exec, const Q& q, const std::byte* messages, std::size_t bytes,
                          std::vector<segment> segments, std::vector<int> owners,
                          workspace<typename Execution::space>& decoded) {
    using space = typename Execution::space;
    const Moved* first = reinterpret_cast<const Moved*>(messages);
    std::size_t stride = bytes / sizeof(Moved);
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
        auto* const tensors = reinterpret_cast<Moved* const*>(there + segments.size());
        const list_division whole(segments, there, 0, 0);
        const auto all = list_chunks(whole, 1, static_cast<std::size_t>(Q::block_size))[0];
        for (std::size_t i = 0; i != owners.size(); ++i) {
            codec<Execution>::read(exec, one_message{q, messages + i * bytes}, all.in_own(owners[i]),
                                   tensor_table<Moved>{tensors + i * segments.size()});
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

/// Addresses of pieces in the memory of a partition or a mirror, or in `decoded`.
template <class Moved, execution Execution, quantizer Q, class Tensors>
auto stored_elements(const Execution& exec, const secondary_partition<Q, typename Execution::space>& secondary,
                     const Tensors& tensors, workspace<typename Execution::space>& decoded) {
    return elements_of_messages<Moved>(exec, secondary.stored_as(), secondary.storage().data(),
                                       secondary.storage().size(), segments_over(tensors, secondary.group_size()),
                                       {secondary.index()}, decoded);
}
template <class Moved, execution Execution, quantizer Q, class Tensors>
auto stored_elements(const Execution& exec, const shard_mirror<Q, typename Execution::space>& mirror,
                     const Tensors& tensors, workspace<typename Execution::space>& decoded) {
    std::vector<int> owners;
    for (const mirrored_shard& kept : mirror.kept()) owners.push_back(kept.owner);
    return elements_of_messages<Moved>(exec, mirror.stored_as(), mirror.storage().data(), mirror.message_bytes(),
                                       segments_over(tensors, mirror.size()), std::move(owners), decoded);
}

/// Addresses of pieces in the memory of a replica.
template <class Moved, execution Execution, class Space, quantizer Exact, quantizer IntraNode, class Tensors>
auto stored_elements(const Execution&, const secondary_replica<Exact, Space, IntraNode>& replica,
                     const Tensors& tensors, workspace<Space>&) {
    const shard_owners& owners = replica.owners();
    return [&replica, &owners, segments = segments_over(tensors, owners.size())](const recovered_piece& p) {
        const segment& s = segments[p.tensor];
        const int owner = static_cast<int>(p.begin / s.part.slice_size());
        const int round = owners.index_of(owner) / replica.rounds().ranks;
        const auto* const shards =
            reinterpret_cast<const Moved*>(replica.slot(round * owners.groups() + owners.group_of(owner)));
        return shards + s.place.elements + (p.begin - s.part.offset(owner));
    };
}

}  // namespace zeropp::detail
