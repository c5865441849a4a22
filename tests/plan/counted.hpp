#pragma once
/// \file
/// What the collectives really send, as the tests of the plan hold against it.

#include "support/catch.hpp"
#include "support/watchdog.hpp"

#include <zeropp/codec/host.hpp>
#include <zeropp/collective/hierarchical_quantized_reduce_scatter.hpp>
#include <zeropp/collective/quantized_all_gather.hpp>
#include <zeropp/collective/quantized_all_reduce.hpp>
#include <zeropp/collective/quantized_update.hpp>
#include <zeropp/collective/secondary_partition_gather.hpp>
#include <zeropp/execution/host.hpp>
#include <zeropp/execution/host_queue.hpp>
#include <zeropp/plan/volume.hpp>
#include <zeropp/topology/two_level.hpp>
#include <zeropp/transport/communicator.hpp>
#include <zeropp/transport/counting.hpp>
#include <zeropp/transport/threads.hpp>

#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

namespace plan_test {

/// A number of nodes of equal size.
struct grid_point {
    int nodes;
    int ranks_per_node;
};
/// Topologies on which every collective is counted.
inline const std::vector<zeropp::two_level> grid{{1, 1},
                                                 {1, 2},
                                                 {2, 1},
                                                 {1, 4},
                                                 {4, 1},
                                                 {2, 2},
                                                 {3, 2},
                                                 {2, 3},
                                                 {3, 3},
                                                 {2, 4},
                                                 zeropp::two_level::of_nodes({1, 3}),
                                                 zeropp::two_level::of_nodes({3, 5, 2})};

/// Sizes that ranks and blocks divide, and sizes that nothing divides; some leave ranks with no elements.
inline const std::vector<std::size_t> sizes{0, 1, 3, 17, 1000, 1024, 4099, 12 * 1024 + 7};

/// Runs call(comm) on threads, nodes counted as they are in `truly`, and checks that every rank sent planned(rank).
template <class Planned, class Call>
void check_sent(const zeropp::two_level& told, const zeropp::two_level& truly, const std::string& what, Planned planned,
                Call call) {
    const zeropp_test::watchdog guard(std::chrono::seconds(60), what);
    std::vector<zeropp::volume> sent(static_cast<std::size_t>(truly.size()));
    zeropp::run_on_threads(truly.size(), [&](zeropp::thread_transport transport) {
        zeropp::communicator comm(told, zeropp::counting(transport, truly));
        call(comm);
        const zeropp::traffic counted = comm.world().total();
        sent[static_cast<std::size_t>(comm.rank())] = {counted.intra_node_bytes, counted.inter_node_bytes};
    });
    for (std::size_t rank = 0; rank != sent.size(); ++rank) {
        INFO(what << " on " << truly.groups() << " x " << truly.group_size(0) << ", rank " << rank);
        const zeropp::volume expected = planned(static_cast<int>(rank));
        REQUIRE(sent[rank].intra_node == expected.intra_node);
        REQUIRE(sent[rank].inter_node == expected.inter_node);
    }
}

template <class T, class Comm>
std::vector<T> shard_of(const Comm& comm, std::size_t n) {
    return std::vector<T>(zeropp::partition(n, comm.size()).size(comm.rank()));
}

template <class T, class Quantizer>
void check_all_gathers(const Quantizer& q) {
    for (const zeropp::two_level& ranks : grid) {
        for (const std::size_t n : sizes) {
            for (const int chunks : {1, 3, 1000}) {
                check_sent(
                    ranks, ranks, "all-gather of " + std::to_string(n) + " in " + std::to_string(chunks) + " chunks",
                    [&](int rank) {
                        return zeropp::all_gather_volume(ranks, zeropp::wire_format_of(q), n, chunks, rank);
                    },
                    [&](auto& comm) {
                        const zeropp::host exec;
                        std::vector<T> full(n);
                        zeropp::workspace<zeropp::host_space> scratch(
                            zeropp::quantized_all_gather_workspace_bytes(ranks, q, n, {.chunks = chunks}));
                        zeropp::quantized_all_gather(zeropp::pipeline<zeropp::host>{exec, exec}, comm, q,
                                                     shard_of<T>(comm, n), full, {.chunks = chunks}, scratch.view());
                    });
            }
        }
    }
}

template <class T, class IntraNode, class InterNode>
void check_reduce_scatters(const IntraNode& intra_node, const InterNode& inter_node) {
    for (const zeropp::two_level& ranks : grid) {
        for (const std::size_t n : sizes) {
            for (const int chunks : {1, 2, 3, 7, 1000}) {
                check_sent(
                    ranks, ranks,
                    "reduce-scatter of " + std::to_string(n) + " in " + std::to_string(chunks) + " chunks",
                    [&](int rank) {
                        return zeropp::reduce_scatter_volume(
                            ranks, {zeropp::wire_format_of(intra_node), zeropp::wire_format_of(inter_node)}, n, chunks,
                            rank);
                    },
                    [&](auto& comm) {
                        std::vector<T> shard = shard_of<T>(comm, n);
                        zeropp::hierarchical_quantized_reduce_scatter(zeropp::host{}, comm,
                                                                      zeropp::hops{intra_node, inter_node},
                                                                      std::vector<T>(n), shard, {.chunks = chunks});
                    });
            }
        }
    }
}

template <class T, class IntraNode, class InterNode>
void check_all_reduces(const IntraNode& intra_node, const InterNode& inter_node) {
    for (const zeropp::two_level& ranks : grid) {
        for (const std::size_t n : {std::size_t{0}, std::size_t{1}, std::size_t{5000}, std::size_t{120'001}}) {
            for (const int chunks : {1, 3, zeropp::auto_chunks}) {
                check_sent(
                    ranks, ranks, "all-reduce of " + std::to_string(n) + " in " + std::to_string(chunks) + " chunks",
                    [&](int rank) {
                        return zeropp::all_reduce_volume(
                            ranks, {zeropp::wire_format_of(intra_node), zeropp::wire_format_of(inter_node)},
                            zeropp::wire_format_of(inter_node), n, chunks, rank);
                    },
                    [&](auto& comm) {
                        const zeropp::host_queue first, second;
                        std::vector<T> tensor(n);
                        zeropp::quantized_all_reduce(zeropp::pipeline<zeropp::host_queue>{first, second}, comm,
                                                     zeropp::hops{intra_node, inter_node, inter_node}, tensor, tensor,
                                                     {.chunks = chunks});
                    });
            }
        }
    }
}

/// An update that moves differences, gathered in chunks, and the gather of a way back.
template <class T, class Quantizer, class Exact, class IntraNode>
void check_updates(const Quantizer& q, const Exact&, const IntraNode& intra_node) {
    using replica_type = zeropp::secondary_replica<Exact, zeropp::host_space, IntraNode>;
    for (const zeropp::two_level& ranks : grid) {
        for (const std::size_t n : sizes) {
            for (const int chunks : {1, 3, 1000}) {
                const zeropp::wire_format kept = zeropp::wire_format_of(intra_node);
                check_sent(
                    ranks, ranks, "update of " + std::to_string(n) + " in " + std::to_string(chunks) + " chunks",
                    [&](int rank) {
                        return zeropp::update_gather_volume(ranks, zeropp::wire_format_of(q), kept, n, chunks, rank) +
                               zeropp::replica_gather_volume(ranks, kept, n, rank);
                    },
                    [&](auto& comm) {
                        const zeropp::host exec;
                        zeropp::workspace<zeropp::host_space> storage(replica_type::storage_bytes(ranks, n));
                        replica_type replica(ranks, comm.rank(), n, storage.view(), intra_node);
                        replica.stamp(1);
                        std::vector<T> full(n);
                        zeropp::quantized_update(zeropp::pipeline<zeropp::host>{exec, exec}, comm, q,
                                                 shard_of<T>(comm, n), replica.to(2, full), {.chunks = chunks});
                        zeropp::secondary_partition_gather(exec, comm, replica, 2, full);
                    });
            }
        }
    }
}

/// In groups of every size that a plan takes: parts of nodes, nodes, several nodes, all ranks.
template <class T, class Quantizer>
void check_secondary_gathers(const Quantizer& q) {
    using secondary_type = zeropp::secondary_partition<Quantizer, zeropp::host_space>;
    for (const auto [nodes, per_node] :
         std::vector<grid_point>{{1, 1}, {1, 4}, {4, 1}, {2, 2}, {3, 2}, {2, 4}, {4, 2}}) {
        const zeropp::two_level ranks(nodes, per_node);
        for (int k = 1; k <= ranks.size(); ++k) {
            if (ranks.size() % k != 0 || (per_node % k != 0 && k % per_node != 0)) {
                REQUIRE_THROWS_AS(zeropp::secondary_gather_volume(ranks, k, zeropp::wire_format_of(q), 100),
                                  zeropp::precondition_error);
                continue;
            }
            for (const std::size_t n : sizes) {
                check_sent(
                    zeropp::two_level::of_size(ranks.size(), k), ranks,
                    "secondary gather of " + std::to_string(n) + " in groups of " + std::to_string(k),
                    [&](int rank) {
                        return zeropp::secondary_gather_volume(ranks, k, zeropp::wire_format_of(q), n, rank);
                    },
                    [&](auto& comm) {
                        zeropp::workspace<zeropp::host_space> storage(secondary_type::storage_bytes(q, n, k));
                        secondary_type secondary(q, n, k, comm.index(), storage.view());
                        std::vector<T> full(n);
                        secondary.store(zeropp::host{}, full, 1);
                        zeropp::secondary_partition_gather(zeropp::host{}, comm, secondary, 1, full);
                    });
            }
        }
    }
    // Each node is a group, of whatever size.
    for (const zeropp::two_level& ranks : grid) {
        check_sent(
            ranks, ranks, "secondary gather in whole nodes",
            [&](int rank) {
                return zeropp::secondary_gather_volume(ranks, zeropp::whole_nodes, zeropp::wire_format_of(q), 4099,
                                                       rank);
            },
            [&](auto& comm) {
                const int k = comm.group_size();
                zeropp::workspace<zeropp::host_space> storage(secondary_type::storage_bytes(q, 4099, k));
                secondary_type secondary(q, 4099, k, comm.index(), storage.view());
                std::vector<T> full(4099);
                secondary.store(zeropp::host{}, full, 1);
                zeropp::secondary_partition_gather(zeropp::host{}, comm, secondary, 1, full);
            });
    }
}

}  // namespace plan_test
