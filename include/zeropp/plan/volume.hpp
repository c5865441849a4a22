#pragma once
/// \file
/// Bytes that collectives send, before any is sent.

#include <zeropp/core/error.hpp>
#include <zeropp/elastic/partners.hpp>
#include <zeropp/layout/chunking.hpp>
#include <zeropp/layout/partition.hpp>
#include <zeropp/layout/wire_format.hpp>
#include <zeropp/topology/columns.hpp>
#include <zeropp/topology/flat.hpp>
#include <zeropp/topology/shard_owners.hpp>
#include <zeropp/topology/topology.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

namespace zeropp {

/// Bytes that a rank sends to ranks of its node, to other nodes (of its site, if the topology has three levels), and to
/// other sites. In nodes of equal size, every rank sends the same number of bytes; otherwise functions give that of
/// their argument `rank`. `counting` counts exactly these bytes. Functions throw precondition_error unless `rank` is
/// one of the ranks.
struct volume {
    std::uint64_t intra_node = 0;
    std::uint64_t inter_node = 0;
    std::uint64_t inter_site = 0;

    /// Bytes along a level. Levels beyond the third count as the third.
    constexpr std::uint64_t& at(int level) { return level == 0 ? intra_node : level == 1 ? inter_node : inter_site; }
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

/// Bytes of one rank's messages of a shard, one for each chunk of `cut`.
inline std::uint64_t message_bytes(const chunking& cut, const wire_format& format) {
    if (cut.chunks == 0) return 0;
    return (cut.chunks - 1) * format.bytes(cut.chunk) + format.bytes(cut.count(cut.chunks - 1));
}

namespace detail {
/// Throws precondition_error unless `rank` is one of `ranks`.
template <topology Topology>
void require_rank(const Topology& ranks, int rank) {
    if (rank >= 0 && rank < ranks.size()) return;
    throw precondition_error("volume", "a rank from 0 to " + std::to_string(ranks.size() - 1), std::to_string(rank));
}

/// Throws precondition_error unless `given` is at least `least`. `expected` names the smallest number: "1 rank".
inline void require_least(const char* where, const char* expected, int given, int least = 1) {
    if (given >= least) return;
    throw precondition_error(where, std::string("at least ") + expected, std::to_string(given));
}

/// Cuts a tensor's shards into `chunks` chunks or, if `auto_chunks`, as many as a pipeline takes. `last` is the format
/// of messages along the last level.
template <topology Topology>
chunking planned_chunks(const Topology& ranks, const wire_format& last, std::size_t elements, int chunks,
                        std::size_t block) {
    static_assert(!std::same_as<Topology, shard_owners>, "plans are of topologies whose ranks all own shards");
    const std::size_t slice = partition(elements, ranks.size()).slice_size();
    return {slice, chunks_for(chunks, ranks, last.bytes(slice), true), block};
}

/// Bytes of a message along each level, or of all messages of a shard's chunks.
using level_bytes = volume;

/// The bytes of a shard's messages along each level.
inline level_bytes bytes_by_level(const chunking& cut, const level_formats& formats) {
    return {message_bytes(cut, formats.at(0)), message_bytes(cut, formats.at(1)), message_bytes(cut, formats.at(2))};
}
constexpr level_bytes on_all_levels(std::uint64_t bytes) { return {bytes, bytes, bytes}; }

/// Number of messages that `rank` sends along `level`, to all peers: in each round of its node, one for each node to
/// every other rank of its own; for each column that it serves, one for each rank beyond the level to every peer.
template <topology Topology>
std::uint64_t messages_along(const Topology& ranks, int level, int rank) {
    const column_rounds rounds = rounds_of(ranks, ranks.group_of(rank));
    const int peers = level == 0 ? rounds.count() * (rounds.ranks - 1)
                                 : rounds.served(ranks.index_of(rank)) * (extent(ranks, level) - 1);
    return static_cast<std::uint64_t>(peers) * static_cast<std::uint64_t>(slots_beyond(ranks, level));
}

/// Bytes that `rank` sends if messages have `bytes`. Throws precondition_error unless `rank` is one of `ranks`.
template <topology Topology>
volume hop_volume(const Topology& ranks, int rank, level_bytes bytes) {
    require_rank(ranks, rank);
    volume sent;
    for (int l = 0; l != Topology::levels; ++l) sent.at(l) += messages_along(ranks, l, rank) * bytes.at(l);
    return sent;
}
}  // namespace detail

/// Bytes that `rank` sends in a quantized_update that gathers, for `elements` elements: its differences to its
/// counterparts, then its replicas, in messages of `kept_as`, to its node.
template <topology Topology>
volume update_gather_volume(const Topology& ranks, const wire_format& differences, const wire_format& kept_as,
                            std::size_t elements, int chunks = 1, int rank = 0) {
    const chunking cut = detail::planned_chunks(ranks, differences, elements, chunks,
                                                std::max(differences.block_size, kept_as.block_size));
    const std::uint64_t beyond = message_bytes(cut, differences);
    return detail::hop_volume(ranks, rank, {message_bytes(cut, kept_as), beyond, beyond});
}

/// Bytes that `rank` sends in quantized_all_gather for `elements` elements in `chunks` chunks, or `auto_chunks`. It
/// sends its messages to its counterparts, then the messages of its index to its node.
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

/// Bytes that `rank` sends in a mirror_shards of each of `tensors`, in elements: a message to each partner node, once
/// for each column that it serves. The last rank of a node sends the most of its node's.
template <topology Topology>
volume mirror_volume(const Topology& ranks, std::span<const std::size_t> tensors, const wire_format& mirror,
                     int rank = 0) {
    detail::require_rank(ranks, rank);
    const std::vector<int> members = partner_ranks(ranks, rank);
    const auto own = static_cast<int>(std::ranges::lower_bound(members, rank) - members.begin());
    std::uint64_t bytes = 0;
    for (const std::size_t n : tensors) bytes += mirror.bytes(partition(n, ranks.size()).slice_size());
    return detail::hop_volume(ranks.shrink(members), own, {.inter_node = bytes});
}

/// Bytes that `rank` sends in hierarchical_quantized_reduce_scatter for `elements` elements in `chunks` chunks, or
/// `auto_chunks`. Each rank of its node gets the shards of that rank's index, then each counterpart its shard.
template <topology Topology>
volume reduce_scatter_volume(const Topology& ranks, const level_formats& formats, std::size_t elements, int chunks = 1,
                             int rank = 0) {
    const chunking cut =
        detail::planned_chunks(ranks, formats.at(Topology::levels - 1), elements, chunks, formats.largest_block());
    return detail::hop_volume(ranks, rank, detail::bytes_by_level(cut, formats));
}

namespace detail {
/// Bytes that `rank` sends in a two-shot quantized_all_reduce.
template <topology Topology>
volume two_shot_volume(const Topology& ranks, const level_formats& formats, const wire_format& all_gather,
                       std::size_t elements, int chunks, int rank) {
    const chunking cut = planned_chunks(ranks, formats.at(Topology::levels - 1), elements, chunks,
                                        std::max(formats.largest_block(), all_gather.block_size));
    return hop_volume(ranks, rank, bytes_by_level(cut, formats)) +
           hop_volume(ranks, rank, on_all_levels(message_bytes(cut, all_gather)));
}

/// The format of the first level with a hop.
template <topology Topology>
const wire_format& first_hop_of(const Topology& ranks, const level_formats& formats) {
    int level = 0;
    while (!has_hop(ranks, level)) ++level;
    return formats.at(level);
}
}  // namespace detail

/// Bytes that `rank` sends in quantized_all_reduce for `elements` elements in `chunks` chunks, or `auto_chunks`. By
/// size: one-shot, its whole tensor to all; or two-shot, a reduce-scatter, and an all-gather in format `all_gather`.
template <topology Topology>
volume all_reduce_volume(const Topology& ranks, const level_formats& formats, const wire_format& all_gather,
                         std::size_t elements, int chunks = auto_chunks, int rank = 0) {
    detail::require_rank(ranks, rank);
    if (elements == 0) return {};
    const std::size_t slice = partition(elements, ranks.size()).slice_size();
    const std::uint64_t first_hop = detail::first_hop_of(ranks, formats).bytes(slice);
    if (prefers_one_shot(ranks.size(), first_hop, all_gather.bytes(slice))) {
        return detail::hop_volume(ranks, rank,
                                  detail::on_all_levels(static_cast<std::uint64_t>(ranks.size()) * first_hop));
    }
    return detail::two_shot_volume(ranks, formats, all_gather, elements, chunks, rank);
}

/// Bytes that a rank sends in quantized_all_to_all for `elements` elements: along each level, to every other peer the
/// messages for all ranks of its coordinate. Throws precondition_error unless nodes are of equal size.
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

/// Local steps: islands of ranks train by themselves and exchange their progress by outer_step. Functions throw
/// precondition_error for numbers out of range.
struct local_steps {
    /// Number of islands, at least 1.
    int islands;
    /// Number of inner steps between two exchanges of a tensor, at least 1.
    int every;
    /// Number of inner steps between the begin of an exchange and its use, below `every`.
    int delay = 0;
    /// Format of the exchange, on all hops.
    wire_format differences;
    /// Format of error feedback's residuals: for a quantizer Q, `wire_format_of` Storage::storage<Q>.
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

/// Bytes that a rank sends to ranks of other islands in one exchange of `elements` elements, which the ranks of an
/// island divide. In a step it sends a part of 1 / every.
template <topology Topology>
std::uint64_t outer_step_volume(const Topology& island, const local_steps& local, std::size_t elements) {
    detail::require_possible(local);
    const std::size_t shard = partition(elements, island.size()).slice_size();
    if (local.islands == 1 || shard == 0) return 0;
    const flat between(local.islands);
    const wire_format& f = local.differences;
    // With error feedback, the all-reduce is two-shot in every size.
    return (local.residuals ? detail::two_shot_volume(between, {f, f}, f, shard, 1, 0)
                            : all_reduce_volume(between, {f, f}, f, shard, 1))
        .intra_node;
}

/// In place of a number of ranks in a secondary group: each node is one group.
inline constexpr int whole_nodes = -1;

/// Number of ranks in the secondary group of `rank`: `wanted`, or its node's for `whole_nodes`.
template <topology Topology>
constexpr int secondary_group_size(const Topology& ranks, int wanted, int rank) {
    return wanted == whole_nodes ? ranks.group_size(ranks.group_of(rank)) : wanted;
}

/// Number of a rank's peers in its secondary group: on its node, on others, and on other sites. A group is its node
/// (`whole_nodes`) or, if nodes are of equal size, `group_size` consecutive ranks. Those require nodes of consecutive
/// ranks. Throws precondition_error unless they divide the ranks, and are whole parts of nodes (or of sites) or whole
/// ones: the numbers are then equal on all ranks.
struct secondary_peers {
    int intra_node;
    int inter_node;
    int inter_site = 0;

    template <topology Topology>
    secondary_peers(const Topology& ranks, int group_size, int rank = 0) {
        detail::require_rank(ranks, rank);
        const int of_node = ranks.group_size(ranks.group_of(rank));
        if (group_size == whole_nodes) {
            intra_node = of_node - 1;
            inter_node = 0;
            return;
        }
        if (!has_equal_groups(ranks)) {
            throw precondition_error("secondary group size", "whole nodes, since nodes differ in size",
                                     std::to_string(group_size));
        }
        int of_site = ranks.size();
        if constexpr (Topology::levels > 2) of_site = of_node * extent(ranks, 1);
        const auto divides = [&](int ranks_there) {
            return ranks_there % group_size == 0 || group_size % ranks_there == 0;
        };
        if (group_size < 1 || !(divides(of_node) && divides(of_site) && ranks.size() % group_size == 0)) {
            const std::string of_sites =
                of_site == ranks.size() ? "" : ", and the site's " + std::to_string(of_site) + " alike";
            throw precondition_error("secondary group size",
                                     "a divisor of the " + std::to_string(ranks.size()) +
                                         " ranks that divides the node's " + std::to_string(of_node) +
                                         " or is a multiple of them" + of_sites,
                                     std::to_string(group_size));
        }
        intra_node = std::min(group_size, of_node) - 1;
        inter_node = std::min(group_size, of_site) - 1 - intra_node;
        inter_site = group_size - 1 - intra_node - inter_node;
    }
};

/// Bytes that `rank` sends in secondary_partition_gather for `elements` elements, in groups of `group_size` consecutive
/// ranks, or `whole_nodes`: its message to each of the group. Throws as `secondary_peers` does.
template <topology Topology>
volume secondary_gather_volume(const Topology& ranks, int group_size, const wire_format& stored_as,
                               std::size_t elements, int rank = 0) {
    const secondary_peers peers(ranks, group_size, rank);
    if (elements == 0) return {};
    const int divided_over = secondary_group_size(ranks, group_size, rank);
    const std::uint64_t message = stored_as.bytes(partition(elements, divided_over).slice_size());
    return {.intra_node = static_cast<std::uint64_t>(peers.intra_node) * message,
            .inter_node = static_cast<std::uint64_t>(peers.inter_node) * message,
            .inter_site = static_cast<std::uint64_t>(peers.inter_site) * message};
}

/// hpZ: a second copy of the weights, divided over groups of `group_size` ranks, or over `whole_nodes`.
struct secondary_options {
    int group_size;
    wire_format stored_as;
};

/// Communication of a ZeRO-3 training step. ZeRO-3 itself has `cast_to` formats and no secondary partition; qwZ
/// changes `weights`, qgZ `gradients`, hpZ `secondary`.
struct step_options {
    /// Formats of weights (forward gather, and backward without `secondary`), and of gradients along each level.
    wire_format weights;
    level_formats gradients;
    std::optional<secondary_options> secondary = std::nullopt;
    /// Format of the replicas that every node keeps, divided over its ranks. `weights` is then the format of their
    /// differences, and `secondary` must be empty.
    std::optional<wire_format> replicas = std::nullopt;
    /// Number of chunks of the reduce-scatter, and of the all-gathers. `auto_chunks`: as many as a pipeline takes.
    int chunks = 1;
    int gather_chunks = 1;
};

/// Bytes that a rank sends in a training step.
struct step_volume {
    volume forward;
    volume backward;
    volume gradients;

    /// Bytes of the whole step.
    volume total() const { return forward + backward + gradients; }
    friend bool operator==(const step_volume&, const step_volume&) = default;
};

/// Bytes that `rank` sends in a step of a model. `tensors` are sizes in elements; each tensor moves by itself.
template <topology Topology>
step_volume volume_of_step(const Topology& ranks, std::span<const std::size_t> tensors, const step_options& options,
                           int rank = 0) {
    step_volume sum;
    for (const std::size_t n : tensors) {
        if (options.replicas) {
            sum.forward +=
                update_gather_volume(ranks, options.weights, *options.replicas, n, options.gather_chunks, rank);
            sum.backward += replica_gather_volume(ranks, *options.replicas, n, rank);
        } else {
            const volume gather = all_gather_volume(ranks, options.weights, n, options.gather_chunks, rank);
            sum.forward += gather;
            sum.backward += options.secondary ? secondary_gather_volume(ranks, options.secondary->group_size,
                                                                        options.secondary->stored_as, n, rank)
                                              : gather;
        }
        sum.gradients += reduce_scatter_volume(ranks, options.gradients, n, options.chunks, rank);
    }
    return sum;
}

}  // namespace zeropp
