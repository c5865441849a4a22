#pragma once
/// \file
/// Prediction of the time of a training step from rates and latencies of links: the alpha-beta model.

#include <zeropp/layout/partition.hpp>
#include <zeropp/layout/wire_format.hpp>
#include <zeropp/plan/volume.hpp>
#include <zeropp/topology/columns.hpp>
#include <zeropp/topology/topology.hpp>

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>

namespace zeropp {

/// Speed of a link: bytes per second in each direction at once, and seconds of latency of each message.
struct link_speed {
    double bytes_per_second;
    double latency_seconds = 0;
};

/// Links and codec of the machine that a plan is for.
struct machine {
    /// Link of a rank to the other ranks of its node.
    link_speed intra_node;
    /// Link of a whole node to the other nodes (of its site, with three levels). All ranks of the node share the link.
    link_speed inter_node;
    /// Bytes per second that a rank's codec reads and writes; 0 leaves the codec's time out. `plain` formats, 16 bits
    /// or more without parameters, take no time.
    double codec_bytes_per_second = 0;
    /// Link of a whole site to the other sites, for topologies of three levels. All ranks of the site share the link.
    link_speed inter_site = inter_node;

    /// Link of a level. Levels beyond the third have the link of the third.
    const link_speed& at(int level) const { return level == 0 ? intra_node : level == 1 ? inter_node : inter_site; }
};

/// Seconds of one collective: of the hop along each level, and of the codec, which encodes and decodes messages.
struct collective_time {
    double intra_node = 0;
    double inter_node = 0;
    double codec = 0;
    /// Seconds until all hops have ended. Hops may overlap, so this is at most the sum of the levels' seconds.
    double hops = 0;
    /// Seconds of the hop between sites.
    double inter_site = 0;

    /// Seconds of the hops and the codec.
    double total() const { return hops + codec; }
    /// Seconds of the hop along a level. Levels beyond the third count as the third.
    double& at(int level) { return level == 0 ? intra_node : level == 1 ? inter_node : inter_site; }

    collective_time& operator+=(const collective_time& other) {
        intra_node += other.intra_node;
        inter_node += other.inter_node;
        codec += other.codec;
        hops += other.hops;
        inter_site += other.inter_site;
        return *this;
    }
};

namespace detail {

constexpr double real(std::integral auto n) { return static_cast<double>(n); }

/// Seconds of a hop that sends `bytes` bytes in all to `peers` peers, one message to each, one after another.
inline double hop_seconds(const link_speed& of, std::int64_t peers, double bytes) {
    return peers == 0 ? 0.0 : real(peers) * of.latency_seconds + bytes / of.bytes_per_second;
}

inline double codec_seconds(const machine& m, bool plain, double bytes) {
    return m.codec_bytes_per_second > 0 && !plain ? bytes / m.codec_bytes_per_second : 0.0;
}

/// Seconds of one of `chunks` equal chunks of a hop along `level`. `bytes` are the bytes of a shard's messages of all
/// chunks. Along level 0, the slowest node decides. Along later levels, all ranks of a node, or of a site, share one
/// link. Each node sends other nodes as many bytes as the largest node; ranks of the smallest node start the most
/// messages.
template <topology Topology>
double level_seconds(const machine& m, const Topology& ranks, int level, std::uint64_t bytes, double chunks) {
    const double of_peer = real(slots_beyond(ranks, level)) * real(bytes);
    if (level != 0) {
        const int peers = extent(ranks, level) - 1;
        return hop_seconds(m.at(level), static_cast<std::int64_t>(most_served(ranks)) / ranks.groups() * peers,
                           of_peer * real(peers) * real(ranks_within(ranks, level - 1)) / chunks);
    }
    double slowest = 0;
    for (int g = 0; g != (has_equal_groups(ranks) ? 1 : ranks.groups()); ++g) {
        const int sends = sends_along(ranks, 0, ranks.rank_of(g, 0));
        slowest = std::max(slowest, hop_seconds(m.intra_node, sends, of_peer * real(sends) / chunks));
    }
    return slowest;
}

/// Times of a collective with a hop along each level, with messages of `bytes` in `chunks` equal chunks. The hop along
/// the last level overlaps the others: the longer of the two counts whole, and of the shorter one chunk.
template <topology Topology>
collective_time all_hops(const machine& m, const Topology& ranks, const volume& bytes, double chunks) {
    constexpr int last = Topology::levels - 1;
    collective_time t;
    double within = 0, across = 0;
    for (int l = 0; l <= last; ++l) {
        const double seconds = chunks * level_seconds(m, ranks, l, bytes.at(l), chunks);
        t.at(l) += seconds;
        (l == last ? across : within) += seconds;
    }
    t.hops = std::max(within, across) + std::min(within, across) / chunks;
    return t;
}

}  // namespace detail

/// Time of quantized_all_gather for `elements` elements of `element_bytes` bytes. Hops of several chunks overlap.
template <topology Topology>
collective_time all_gather_time(const machine& m, const Topology& ranks, const wire_format& format,
                                std::size_t elements, std::size_t element_bytes, int chunks = 1) {
    const std::size_t slice = partition(elements, ranks.size()).slice_size();
    if (slice == 0) return {};
    const auto sizes = detail::planned(ranks, std::array<message_format, 1>{format}, elements, chunks);
    collective_time t =
        detail::all_hops(m, ranks, detail::on_all_levels(sizes.total(0)), detail::real(sizes.cut.size()));
    t.codec = detail::codec_seconds(m, format.plain,
                                    detail::real((slice + elements) * element_bytes) +
                                        detail::real(sizes.total(0)) * (1.0 + detail::real(ranks.size())));
    return t;
}

/// Time of secondary_partition_gather for `elements` elements of `element_bytes` bytes. Throws precondition_error for a
/// group size that `secondary_peers` refuses.
template <topology Topology>
collective_time secondary_gather_time(const machine& m, const Topology& ranks, const secondary_options& secondary,
                                      std::size_t elements, std::size_t element_bytes) {
    collective_time t;
    // The slowest node decides, if nodes differ in size.
    for (int g = 0; g != (has_equal_groups(ranks) ? 1 : ranks.groups()); ++g) {
        const int rank = ranks.rank_of(g, 0);
        const secondary_peers peers(ranks, secondary.group_size, rank);
        if (elements == 0) return {};
        const volume sent = secondary_gather_volume(ranks, secondary.group_size, secondary.stored_as, elements, rank);
        const int size = secondary_group_size(ranks, secondary.group_size, rank);
        const double message = detail::real(secondary.stored_as.bytes(partition(elements, size).slice_size()));
        collective_time of_node;
        for (int l = 0; l != std::min(Topology::levels, 3); ++l) {
            // The ranks of a node, or of a site, share its link.
            of_node.at(l) += detail::hop_seconds(m.at(l), static_cast<std::int64_t>(peers.at(l)),
                                                 detail::real(sent.at(l)) * detail::real(ranks_within(ranks, l - 1)));
        }
        // One all-gather uses all kinds of links at once.
        of_node.hops = std::max({of_node.intra_node, of_node.inter_node, of_node.inter_site});
        of_node.codec = detail::codec_seconds(m, secondary.stored_as.plain,
                                              detail::real(elements * element_bytes) + message * detail::real(size));
        if (of_node.total() > t.total()) t = of_node;
    }
    return t;
}

/// Time of a quantized_update that also gathers whole tensors of `elements` elements of `element_bytes` bytes. Messages
/// in the format `differences` move between nodes, then messages in the format `kept_as` within nodes. Hops of several
/// chunks overlap. Exact differences have as many bytes as `code_bits` expects, and ranks exchange their sizes first.
template <topology Topology>
collective_time update_gather_time(const machine& m, const Topology& ranks, const wire_format& differences,
                                   const wire_format& kept_as, std::size_t elements, std::size_t element_bytes,
                                   int chunks = 1) {
    const std::size_t slice = partition(elements, ranks.size()).slice_size();
    if (slice == 0) return {};
    const auto sizes = detail::planned(ranks, std::array<message_format, 2>{differences, kept_as}, elements, chunks);
    const auto groups = detail::real(most_served(ranks));
    const std::uint64_t beyond = detail::expected_bytes(differences, sizes.total(0));
    const auto messages = detail::real(beyond);
    const auto kept = detail::real(kept_as.bytes(slice));
    collective_time t = detail::all_hops(m, ranks, {sizes.total(1), beyond, beyond}, detail::real(sizes.cut.size()));
    if (differences.varies) {
        const std::uint64_t bytes = sizes.cut.size() * sizeof(std::uint64_t);
        for (int l = 1; l < Topology::levels; ++l) {
            const double seconds = detail::level_seconds(m, ranks, l, bytes, 1);
            t.at(l) += seconds;
            t.hops += seconds;
        }
    }
    // The codec encodes this rank's shard less the kept copy, and adds each slot's message to that slot's kept shard.
    t.codec =
        detail::codec_seconds(m, false,
                              detail::real(slice * element_bytes) + kept + messages + groups * (messages + 2 * kept)) +
        detail::codec_seconds(m, kept_as.plain,
                              detail::real(elements * element_bytes) + kept * (groups + detail::real(ranks.size())));
    return t;
}

/// Time of secondary_partition_gather from replicas that quantized_update has brought up to date.
template <topology Topology>
collective_time replica_gather_time(const machine& m, const Topology& ranks, const wire_format& kept_as,
                                    std::size_t elements, std::size_t element_bytes) {
    if (elements == 0) return {};
    const std::uint64_t message = kept_as.bytes(partition(elements, ranks.size()).slice_size());
    const auto kept = detail::real(message);
    collective_time t;
    t.intra_node = detail::level_seconds(m, ranks, 0, message, 1);
    t.hops = t.intra_node;
    t.codec =
        detail::codec_seconds(m, kept_as.plain,
                              detail::real(elements * element_bytes) +
                                  kept * detail::real(most_served(ranks) + static_cast<std::size_t>(ranks.size())));
    return t;
}

/// Time of hierarchical_quantized_reduce_scatter for `elements` elements of `element_bytes` bytes: hops from level 0
/// on, in the formats `formats`. Hops of several chunks overlap.
template <topology Topology>
collective_time reduce_scatter_time(const machine& m, const Topology& ranks, const level_formats& formats,
                                    std::size_t elements, std::size_t element_bytes, int chunks = 1) {
    const std::size_t slice = partition(elements, ranks.size()).slice_size();
    if (slice == 0) return {};
    const auto sizes = detail::planned(ranks, formats.by_level(), elements, chunks, Topology::levels - 1);
    collective_time t = detail::all_hops(m, ranks, detail::bytes_by_level(sizes), detail::real(sizes.cut.size()));
    // The codec writes and reads each hop's messages once.
    double messages = 0;
    bool plain = true;
    for (int l = 0; l != Topology::levels; ++l) {
        messages += detail::real(reduction_slots(ranks, l)) * detail::real(formats.at(l).bytes(slice));
        plain = plain && formats.at(l).plain;
    }
    t.codec = detail::codec_seconds(m, plain, detail::real((elements + slice) * element_bytes) + 2 * messages);
    return t;
}

/// Time of one exchange of all `tensors` at once between islands: in each of two phases, a rank sends to every other
/// island. `between` is the link of a whole island to the others, shared by the island's ranks. The exchange's seconds
/// count as `inter_node`. For each element of a shard, the outer optimizer reads or writes 9 floats: 3 for the
/// difference, 6 to apply the mean. The codec reads or writes 4.
template <topology Topology>
collective_time outer_step_time(const machine& m, const link_speed& between, const Topology& island,
                                std::span<const std::size_t> tensors, const local_steps& local) {
    detail::require_possible(local);
    double sent = 0;
    double shards = 0;
    for (const std::size_t n : tensors) {
        sent += detail::real(outer_step_volume(island, local, n));
        shards += detail::real(partition(n, island.size()).slice_size());
    }
    collective_time t;
    t.inter_node =
        detail::hop_seconds(between, std::int64_t{2} * (local.islands - 1), sent * detail::real(island.size()));
    t.hops = t.inter_node;
    t.codec = detail::codec_seconds(m, false, 13 * sizeof(float) * shards + 2 * sent);
    return t;
}

/// Seconds, on average, that an `exchange` adds to an inner step of `step` seconds: the seconds of its codec and of its
/// hops beyond `delay` steps, divided by `every`.
inline double local_steps_seconds(const collective_time& exchange, const local_steps& local, double step) {
    detail::require_possible(local);
    const double hidden = detail::real(local.delay) * step;
    return (exchange.codec + std::max(0.0, exchange.hops - hidden)) / detail::real(local.every);
}

}  // namespace zeropp
