#pragma once
/// \file
/// Prediction of the bytes that collectives send.

#include <zeropp/core/error.hpp>
#include <zeropp/elastic/partners.hpp>
#include <zeropp/layout/chunking.hpp>
#include <zeropp/layout/divided.hpp>
#include <zeropp/layout/partition.hpp>
#include <zeropp/layout/schedule.hpp>
#include <zeropp/layout/wire_format.hpp>
#include <zeropp/topology/columns.hpp>
#include <zeropp/topology/flat.hpp>
#include <zeropp/topology/shard_owners.hpp>
#include <zeropp/topology/topology.hpp>

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace zeropp {

/// Bytes that a rank sends within its node, to other nodes (of its site, with three levels), and to other sites. With
/// nodes of equal size, all ranks send equally many bytes. Otherwise, functions that return a volume give the bytes of
/// their argument `rank`, and throw precondition_error unless this rank exists. The transport `counting` counts exactly
/// these bytes.
struct volume {
    std::uint64_t intra_node = 0;
    std::uint64_t inter_node = 0;
    std::uint64_t inter_site = 0;

    /// Bytes along a level. Levels beyond the third count as the third.
    constexpr std::uint64_t& at(int level) { return level == 0 ? intra_node : level == 1 ? inter_node : inter_site; }
    constexpr std::uint64_t at(int level) const { return volume(*this).at(level); }
    constexpr volume& operator+=(const volume& other) {
        intra_node += other.intra_node;
        inter_node += other.inter_node;
        inter_site += other.inter_site;
        return *this;
    }
    friend constexpr volume operator+(volume a, const volume& b) { return a += b; }
    friend constexpr volume operator*(const volume& a, std::uint64_t times) {
        return {a.intra_node * times, a.inter_node * times, a.inter_site * times};
    }
    friend bool operator==(const volume&, const volume&) = default;
};

namespace detail {
/// Throws precondition_error unless `given` is at least `least`. `expected` is `least` in words, such as "1 rank".
inline void require_least(const char* where, const char* expected, int given, int least = 1) {
    if (given >= least) return;
    throw precondition_error(where, std::string("at least ") + expected, std::to_string(given));
}

template <topology Topology>
tensor_division planned_tensor(const Topology& ranks, std::size_t elements) {
    static_assert(!std::same_as<Topology, shard_owners>, "plans are of topologies whose ranks all own shards");
    return {elements, ranks.size()};
}

/// Schedule (chunks and messages) of a tensor in `formats`. For `auto_chunks`, the message size in `formats[last]`, the
/// last level's format, decides the number of chunks, as if hops overlap.
template <topology Topology, std::size_t Count>
schedule<tensor_division, Count> planned(const Topology& ranks, const std::array<message_format, Count>& formats,
                                         std::size_t elements, int chunks, std::size_t last = 0) {
    static_assert(Count < 3 || Count >= Topology::levels, "plans of reductions know formats of three levels");
    const tensor_division whole = planned_tensor(ranks, elements);
    return {whole, chunks_for(chunks, ranks, formats[last].bytes_of(whole), true), formats};
}

/// Expected bytes of messages that have at most `most` bytes, of 16-bit elements if sizes vary.
inline std::uint64_t expected_bytes(const wire_format& format, std::uint64_t most) {
    if (!format.varies) return most;
    return static_cast<std::uint64_t>(static_cast<double>(most) * std::min(format.code_bits / 16, 1.0));
}

/// Bytes of one message of each of `tensors`, sizes in elements: of the largest shard over `ranks` ranks.
inline std::uint64_t shard_bytes(std::span<const std::size_t> tensors, int ranks, const wire_format& format) {
    std::uint64_t bytes = 0;
    for (const std::size_t n : tensors) bytes += format.bytes(partition(n, ranks).slice_size());
    return bytes;
}

/// Bytes of the messages of one shard, in all chunks: for each level, in the level's format.
template <class Sizes>
volume bytes_by_level(const Sizes& sizes) {
    return {sizes.total(0), sizes.total(1), sizes.total(2)};
}
constexpr volume on_all_levels(std::uint64_t bytes) { return {bytes, bytes, bytes}; }

/// Bytes that `rank` sends in a collective with a hop along each level. `bytes` are the bytes of a shard's messages.
/// Throws precondition_error unless `rank` is one of `ranks`.
template <topology Topology>
volume hop_volume(const Topology& ranks, int rank, const volume& bytes) {
    existing_rank("volume", ranks.size(), rank);
    volume sent;
    for (int l = 0; l != Topology::levels; ++l) {
        const auto messages = static_cast<std::uint64_t>(sends_along(ranks, l, rank)) *
                              static_cast<std::uint64_t>(slots_beyond(ranks, l));
        sent.at(l) += messages * bytes.at(l);
    }
    return sent;
}
}  // namespace detail

/// Bytes that `rank` sends in a quantized_update that also gathers whole tensors of `elements` elements. The rank sends
/// messages in the format `differences` to other nodes, then messages in the format `kept_as` within its node. Of exact
/// differences, as many bytes as `code_bits` expects, without the sizes that ranks exchange first.
template <topology Topology>
volume update_gather_volume(const Topology& ranks, const wire_format& differences, const wire_format& kept_as,
                            std::size_t elements, int chunks = 1, int rank = 0) {
    const auto sizes = detail::planned(ranks, std::array<message_format, 2>{differences, kept_as}, elements, chunks);
    const std::uint64_t beyond = detail::expected_bytes(differences, sizes.total(0));
    return detail::hop_volume(ranks, rank, {sizes.total(1), beyond, beyond});
}

/// Bytes that `rank` sends in quantized_all_gather for `elements` elements in `chunks` chunks, or `auto_chunks`. Along
/// each level, the last one first, it sends each peer the messages that it has by then.
template <topology Topology>
volume all_gather_volume(const Topology& ranks, const wire_format& format, std::size_t elements, int chunks = 1,
                         int rank = 0) {
    return update_gather_volume(ranks, format, format, elements, chunks, rank);
}

/// Bytes that `rank` sends in secondary_partition_gather from replicas that quantized_update has brought up to date.
template <topology Topology>
volume replica_gather_volume(const Topology& ranks, const wire_format& kept_as, std::size_t elements, int rank = 0) {
    const volume v = all_gather_volume(ranks, kept_as, elements, 1, rank);
    return {.intra_node = v.intra_node};
}

/// Bytes that `rank` sends in one mirror_shards of each of `tensors`, which are sizes in elements. It sends a message
/// to each partner node for each column that it serves. In a node, the last rank sends the most.
template <topology Topology>
volume mirror_volume(const Topology& ranks, std::span<const std::size_t> tensors, const wire_format& mirror,
                     int rank = 0) {
    detail::existing_rank("volume", ranks.size(), rank);
    const std::vector<int> members = partner_ranks(ranks, rank);
    const auto own = static_cast<int>(std::ranges::lower_bound(members, rank) - members.begin());
    const std::uint64_t bytes = detail::shard_bytes(tensors, ranks.size(), mirror);
    return detail::hop_volume(ranks.shrink(members), own, {.inter_node = bytes, .inter_site = bytes});
}

/// Bytes that `rank` sends in hierarchical_quantized_reduce_scatter for `elements` elements in `chunks` chunks, or
/// `auto_chunks`. Along each level, level 0 first, it sends each peer the shards that this peer then sums.
template <topology Topology>
volume reduce_scatter_volume(const Topology& ranks, const level_formats& formats, std::size_t elements, int chunks = 1,
                             int rank = 0) {
    const auto sizes = detail::planned(ranks, formats.by_level(), elements, chunks, Topology::levels - 1);
    return detail::hop_volume(ranks, rank, detail::bytes_by_level(sizes));
}

namespace detail {
/// Bytes that `rank` sends in a two-shot quantized_all_reduce, in formats of three levels, then of the all-gather
/// phase.
template <topology Topology>
volume two_shot_volume(const Topology& ranks, const std::array<message_format, 4>& formats, std::size_t elements,
                       int chunks, int rank) {
    const auto sizes = planned(ranks, formats, elements, chunks, Topology::levels - 1);
    return hop_volume(ranks, rank, bytes_by_level(sizes)) + hop_volume(ranks, rank, on_all_levels(sizes.total(3)));
}
}  // namespace detail

/// Bytes that `rank` sends in quantized_all_reduce for `elements` elements in `chunks` chunks, or `auto_chunks`. Small
/// tensors are one-shot (prefers_one_shot): `rank` sends its whole tensor to all ranks. Others are two-shot: a
/// reduce-scatter, and an all-gather in the format `all_gather`.
template <topology Topology>
volume all_reduce_volume(const Topology& ranks, const level_formats& formats, const wire_format& all_gather,
                         std::size_t elements, int chunks = auto_chunks, int rank = 0) {
    static_assert(Topology::levels <= 3, "plans of reductions know formats of three levels");
    detail::existing_rank("volume", ranks.size(), rank);
    if (elements == 0) return {};
    const std::size_t slice = partition(elements, ranks.size()).slice_size();
    const std::uint64_t first_hop = formats.by_level()[detail::first_hop_of(ranks)].bytes(slice);
    if (prefers_one_shot(ranks.size(), first_hop, all_gather.bytes(slice))) {
        return detail::hop_volume(ranks, rank,
                                  detail::on_all_levels(static_cast<std::uint64_t>(ranks.size()) * first_hop));
    }
    return detail::two_shot_volume(ranks, {formats.at(0), formats.at(1), formats.at(2), all_gather}, elements, chunks,
                                   rank);
}

/// Bytes that a rank sends in quantized_all_to_all for `elements` elements. Along each level, it sends each peer the
/// messages for all ranks with the coordinate of that peer. Throws precondition_error unless nodes are of equal size.
template <topology Topology>
volume all_to_all_volume(const Topology& ranks, const wire_format& format, std::size_t elements) {
    if (!has_equal_groups(ranks)) {
        throw precondition_error("volume", "nodes of equal size", group_sizes_text(ranks));
    }
    const std::uint64_t message = elements == 0 ? 0 : format.bytes(partition(elements, ranks.size()).slice_size());
    volume sent;
    for (int l = 0; l != Topology::levels; ++l) {
        const int peers = extent(ranks, l);
        sent.at(l) += static_cast<std::uint64_t>((peers - 1) * (ranks.size() / peers)) * message;
    }
    return sent;
}

/// Local steps: islands of ranks train by themselves, and exchange their progress by outer_step. Functions that take a
/// local_steps throw precondition_error for numbers out of range.
struct local_steps {
    /// Number of islands, at least 1.
    int islands;
    /// Number of inner steps between two exchanges of a tensor, at least 1.
    int every;
    /// Number of inner steps from the begin of an exchange to the use of its result, from 0 to `every` - 1.
    int delay = 0;
    /// Format of the exchange, on all hops.
    wire_format differences;
    /// Format of error feedback's residuals, if any: for a quantizer Q, `wire_format_of` Storage::storage<Q>.
    std::optional<wire_format> residuals = std::nullopt;
};

namespace detail {
inline void require_possible(const local_steps& local) {
    require_least("local_steps", "1 island", local.islands);
    require_least("local_steps", "1 step between exchanges", local.every);
    if (local.delay >= 0 && local.delay < local.every) return;
    throw precondition_error("local_steps", "a delay from 0 to " + std::to_string(local.every - 1) + " steps",
                             std::to_string(local.delay));
}
}  // namespace detail

/// Bytes that a rank sends to other islands in one exchange of a tensor of `elements` elements, which an island's ranks
/// divide. On average, a step has 1 / `every` of these bytes.
template <topology Topology>
std::uint64_t outer_step_volume(const Topology& island, const local_steps& local, std::size_t elements) {
    detail::require_possible(local);
    const std::size_t shard = partition(elements, island.size()).slice_size();
    if (local.islands == 1 || shard == 0) return 0;
    const flat between(local.islands);
    const wire_format& f = local.differences;
    // With error feedback, the all-reduce is two-shot for tensors of every size.
    return (local.residuals ? detail::two_shot_volume(between, {f, f, f, f}, shard, 1, 0)
                            : all_reduce_volume(between, {f, f}, f, shard, 1))
        .intra_node;
}

/// Value for the size of secondary groups (negative, so that no size equals it): each node is one group.
inline constexpr int whole_nodes = -1;

/// Number of ranks in the secondary group of `rank`: `wanted` or, for `whole_nodes`, the size of its node.
template <topology Topology>
constexpr int secondary_group_size(const Topology& ranks, int wanted, int rank) {
    return wanted == whole_nodes ? ranks.group_size(ranks.group_of(rank)) : wanted;
}

/// True if `ranks` can be divided into secondary groups of `group_size` consecutive ranks. Nodes must be of equal size.
/// Each node, and each site, must be a whole number of groups, or each group a whole number of nodes or of sites.
template <topology Topology>
bool can_be_secondary_groups(const Topology& ranks, int group_size) {
    bool can = group_size >= 1 && has_equal_groups(ranks) && ranks.size() % group_size == 0;
    for (int l = 0; can && l != Topology::levels; ++l) {
        const int within = ranks_within(ranks, l);
        can = within % group_size == 0 || group_size % within == 0;
    }
    return can;
}

/// Numbers of other ranks in a rank's secondary group: on its node, on other nodes of its site, and on other sites. A
/// group is a node (`whole_nodes`), or `group_size` consecutive ranks; nodes must then have consecutive ranks, too.
/// Throws precondition_error for a `group_size` that `can_be_secondary_groups` refuses.
struct secondary_peers : volume {
    template <topology Topology>
    secondary_peers(const Topology& ranks, int group_size, int rank = 0) {
        detail::existing_rank("volume", ranks.size(), rank);
        const int of_node = ranks.group_size(ranks.group_of(rank));
        if (group_size != whole_nodes && !has_equal_groups(ranks)) {
            throw precondition_error("secondary group size", "whole nodes, since nodes differ in size",
                                     std::to_string(group_size));
        }
        if (group_size != whole_nodes && !can_be_secondary_groups(ranks, group_size)) {
            const std::string of_sites = Topology::levels > 2 && extent(ranks, 2) > 1
                                             ? ", and the site's " + std::to_string(ranks_within(ranks, 1)) + " alike"
                                             : "";
            throw precondition_error("secondary group size",
                                     "a divisor of the " + std::to_string(ranks.size()) +
                                         " ranks that divides the node's " + std::to_string(of_node) +
                                         " or is a multiple of them" + of_sites,
                                     std::to_string(group_size));
        }
        int nearer = 1;
        for (int l = 0; l != Topology::levels; ++l) {
            const int within = group_size == whole_nodes ? of_node : std::min(group_size, ranks_within(ranks, l));
            at(l) += static_cast<std::uint64_t>(within - nearer);
            nearer = within;
        }
    }
};

/// Bytes that `rank` sends in secondary_partition_gather for `elements` elements, in groups of `group_size` consecutive
/// ranks, or `whole_nodes`. It sends its message to each other rank of its group. Throws precondition_error unless
/// `rank` exists, or for a group size that `secondary_peers` refuses.
template <topology Topology>
volume secondary_gather_volume(const Topology& ranks, int group_size, const wire_format& stored_as,
                               std::size_t elements, int rank = 0) {
    const secondary_peers peers(ranks, group_size, rank);
    if (elements == 0) return {};
    const int divided_over = secondary_group_size(ranks, group_size, rank);
    const std::uint64_t message = stored_as.bytes(partition(elements, divided_over).slice_size());
    return peers * message;
}

/// hpZ: each group of `group_size` ranks, or of `whole_nodes`, holds a copy of the weights in format `stored_as`.
struct secondary_options {
    int group_size;
    wire_format stored_as;
};

}  // namespace zeropp
