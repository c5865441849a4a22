#include "phases.hpp"

#include <zeropp/mpi.hpp>

#include <mpi.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <span>
#include <utility>

namespace zeropp_scale {

namespace {

using element = zeropp::bfloat16;
using zeropp::detail::require_mpi;

constexpr zeropp::cast_to<element> plain;
constexpr zeropp::block_integer<8, 256, zeropp::symmetric, zeropp::half> weights;
constexpr zeropp::block_integer<8, 256, zeropp::symmetric, zeropp::bfloat16> gradients_intra_node;
constexpr zeropp::block_integer<4, 128, zeropp::signed_absmax, zeropp::bfloat16> gradients_inter_node;
// Formats of weight differences, and of gradients with them.
constexpr zeropp::hadamard<zeropp::block_integer<2, 64, zeropp::signed_absmax, zeropp::bfloat16>> differences;
constexpr zeropp::hadamard<zeropp::block_integer<8, 256, zeropp::symmetric, zeropp::bfloat16>> rotated_intra_node;

/// A transport that moves nothing, so that only the codec of a collective runs.
class silent_transport {
public:
    silent_transport(int rank, int size) : rank_(rank), size_(size) {}

    int rank() const { return rank_; }
    int size() const { return size_; }
    template <zeropp::execution E>
    void all_gather(const E&, const std::byte*, std::byte*, std::size_t) {}
    template <zeropp::execution E>
    void all_to_all(const E&, const std::byte*, std::byte*, std::size_t) {}
    silent_transport split(std::span<const int> members) {
        const auto self = std::find(members.begin(), members.end(), rank_);
        return {static_cast<int>(self - members.begin()), static_cast<int>(members.size())};
    }

private:
    int rank_;
    int size_;
};

using counted_communicator =
    zeropp::communicator<zeropp::three_level, zeropp::counting<zeropp::mpi_transport, zeropp::three_level>>;
using silent_communicator = zeropp::communicator<zeropp::three_level, silent_transport>;

std::vector<std::byte> scratch_of(std::size_t bytes) { return std::vector<std::byte>(bytes); }

/// Weights are constant on each rank and gradients are one, so results are known. Every format keeps them within 2 %.
float weight_of(int rank) { return static_cast<float>(rank + 1); }
constexpr float gradient = 1;

template <class T>
void require_near(float expected, std::span<const T> given, const char* what) {
    for (const T x : given) {
        if (!(std::fabs(static_cast<float>(x) - expected) <= 0.02f * expected)) {
            throw zeropp::error(std::string(what) + ": expected about " + std::to_string(expected) + ", given " +
                                std::to_string(static_cast<float>(x)));
        }
    }
}

template <class T>
void check_gathered(const std::vector<T>& full, int ranks) {
    const zeropp::partition part(full.size(), ranks);
    for (int r = 0; r != ranks; ++r) {
        require_near(weight_of(r), std::span<const T>(full).subspan(part.offset(r), part.size(r)), "gathered");
    }
}

template <class Comm, class Quantizer>
work all_gather(std::shared_ptr<Comm> comm, const Quantizer& q, std::size_t elements) {
    struct arrays {
        std::vector<element> shard, full;
        std::vector<std::byte> scratch;
    };
    const auto a = std::make_shared<arrays>();
    a->shard.assign(zeropp::partition(elements, comm->size()).size(comm->rank()), element(weight_of(comm->rank())));
    a->full.resize(elements);
    a->scratch = scratch_of(zeropp::quantized_all_gather_workspace_bytes(comm->topology(), q, elements));
    return {[=] { zeropp::quantized_all_gather(zeropp::host{}, *comm, q, a->shard, a->full, {}, a->scratch); },
            [=] { check_gathered(a->full, comm->size()); }};
}

template <class Comm>
work secondary_gather(std::shared_ptr<Comm> comm, std::size_t elements) {
    using partition_type = zeropp::secondary_partition<zeropp::cast_to<element>, zeropp::host_space>;
    const int group_size = comm->group_size();
    struct arrays {
        std::vector<std::byte> storage, scratch;
        std::vector<element> full;
        partition_type secondary;

        arrays(std::size_t n, int k, int index)
            : storage(partition_type::storage_bytes(plain, n, k)),
              scratch(zeropp::secondary_partition_gather_workspace_bytes(k, plain, n)), full(n),
              secondary(plain, n, k, index, storage) {}
    };
    const auto a = std::make_shared<arrays>(elements, group_size, comm->index());
    const zeropp::partition part(elements, comm->size());
    for (int r = 0; r != comm->size(); ++r) {
        std::fill_n(a->full.begin() + static_cast<std::ptrdiff_t>(part.offset(r)), part.size(r), element(weight_of(r)));
    }
    a->secondary.store(zeropp::host{}, a->full, 1);
    std::fill(a->full.begin(), a->full.end(), element(0.0f));
    return {[=] { zeropp::secondary_partition_gather(zeropp::host{}, *comm, a->secondary, 1, a->full, a->scratch); },
            [=] { check_gathered(a->full, comm->size()); }};
}

/// Updates a replica from weights that are a tenth too small, and gathers it.
template <class Comm>
work update_gather(std::shared_ptr<Comm> comm, std::size_t elements) {
    using replica_type = zeropp::secondary_replica<zeropp::cast_to<element>, zeropp::host_space>;
    struct arrays {
        std::vector<std::byte> storage, scratch;
        std::vector<element> shard, full;
        replica_type replica;
        std::uint64_t version = 1;

        arrays(const zeropp::three_level& ranks, int rank, std::size_t n)
            : storage(replica_type::storage_bytes(ranks, n, rank)),
              scratch(zeropp::quantized_update_gather_workspace_bytes(ranks, differences, plain, n)),
              shard(zeropp::partition(n, ranks.size()).size(rank), element(0.9f * weight_of(rank))), full(n),
              replica(ranks, rank, n, storage) {}
    };
    const auto a = std::make_shared<arrays>(comm->topology(), comm->rank(), elements);
    zeropp::quantized_update(zeropp::host{}, *comm, differences, a->shard, a->replica.to(a->version), {}, a->scratch);
    a->shard.assign(a->shard.size(), element(weight_of(comm->rank())));
    return {[=] {
                zeropp::quantized_update(zeropp::host{}, *comm, differences, a->shard,
                                         a->replica.to(++a->version, a->full), {}, a->scratch);
            },
            [=] { check_gathered(a->full, comm->size()); }};
}

template <class Comm, class IntraNode, class InterNode>
work reduce_scatter(std::shared_ptr<Comm> comm, const IntraNode& intra_node, const InterNode& inter_node,
                    std::size_t elements) {
    struct arrays {
        std::vector<element> full, shard;
        std::vector<std::byte> scratch;
    };
    const auto a = std::make_shared<arrays>();
    a->full.assign(elements, element(gradient));
    a->shard.resize(zeropp::partition(elements, comm->size()).size(comm->rank()));
    const zeropp::hops by_level{intra_node, inter_node, inter_node};
    a->scratch =
        scratch_of(zeropp::hierarchical_quantized_reduce_scatter_workspace_bytes(comm->topology(), by_level, elements));
    return {[=] {
                zeropp::hierarchical_quantized_reduce_scatter(zeropp::host{}, *comm, by_level, a->full, a->shard, {},
                                                              a->scratch);
            },
            [=] {
                require_near(gradient * static_cast<float>(comm->size()), std::span<const element>(a->shard), "summed");
            }};
}

// Rings carry the bytes of the bfloat16 tensor as half as many floats, because MPI has no sum of bfloat16.

work ring_all_gather(int rank, int size, std::size_t elements) {
    struct arrays {
        std::vector<float> shard, full;
    };
    const auto a = std::make_shared<arrays>();
    a->full.resize(elements / 2);
    a->shard.assign(a->full.size() / static_cast<std::size_t>(size), weight_of(rank));
    const int count = static_cast<int>(a->shard.size());
    return {[=] {
                require_mpi(
                    MPI_Allgather(a->shard.data(), count, MPI_FLOAT, a->full.data(), count, MPI_FLOAT, MPI_COMM_WORLD),
                    "MPI_Allgather");
            },
            [=] { check_gathered(a->full, size); }};
}

work ring_reduce_scatter(int size, std::size_t elements) {
    struct arrays {
        std::vector<float> full, shard;
    };
    const auto a = std::make_shared<arrays>();
    a->full.assign(elements / 2, gradient);
    a->shard.resize(a->full.size() / static_cast<std::size_t>(size));
    // Open MPI has no ring for MPI_Reduce_scatter_block.
    const std::vector<int> counts(static_cast<std::size_t>(size), static_cast<int>(a->shard.size()));
    return {[=] {
                require_mpi(MPI_Reduce_scatter(a->full.data(), a->shard.data(), counts.data(), MPI_FLOAT, MPI_SUM,
                                               MPI_COMM_WORLD),
                            "MPI_Reduce_scatter");
            },
            [=] { require_near(gradient * static_cast<float>(size), std::span<const float>(a->shard), "summed"); }};
}

}  // namespace

std::vector<phase> phases_of_step(const zeropp::three_level& ranks, std::size_t elements) {
    auto transport = zeropp::mpi_transport::duplicate(MPI_COMM_WORLD);
    const int rank = transport.rank();
    const int size = transport.size();
    const auto comm = std::make_shared<counted_communicator>(ranks, zeropp::counting(std::move(transport), ranks));
    const auto silent = std::make_shared<silent_communicator>(ranks, silent_transport(rank, size));
    const auto take_counted = [comm] {
        const zeropp::traffic sent = comm->world().total();
        comm->world().reset();
        return zeropp::volume{sent.intra_node_bytes, sent.inter_node_bytes, sent.inter_site_bytes};
    };

    std::vector<phase> phases;
    // Every node sends as many bytes as the largest, in which each rank serves one column.
    int largest = 0;
    while (ranks.group_size(ranks.group_of(largest)) != zeropp::largest_group_size(ranks)) ++largest;
    const auto add = [&](std::string name, std::string formats, auto planned, auto prepare) {
        const zeropp::volume by_node = planned(largest) * static_cast<std::uint64_t>(zeropp::largest_group_size(ranks));
        const auto nodes_of_site = static_cast<std::uint64_t>(ranks.extent(1));
        phases.push_back({std::move(name), std::move(formats), false, planned(rank),
                          by_node.inter_node + by_node.inter_site, by_node.inter_site * nodes_of_site,
                          [=] { return prepare(comm); }, take_counted, [=] { return prepare(silent); }});
    };
    const auto name = [](const auto& q) { return zeropp::short_text(q.name()).str(); };
    const auto add_gather = [&](std::string of, const auto& q) {
        add(
            std::move(of), name(q),
            [&](int r) { return zeropp::all_gather_volume(ranks, zeropp::wire_format_of(q), elements, 1, r); },
            [=](auto on) { return all_gather(on, q, elements); });
    };
    const auto add_reduction = [&](std::string of, const auto& intra_node, const auto& inter_node) {
        add(
            std::move(of), name(intra_node) + " + " + name(inter_node),
            [&](int r) {
                return zeropp::reduce_scatter_volume(
                    ranks, {zeropp::wire_format_of(intra_node), zeropp::wire_format_of(inter_node)}, elements, 1, r);
            },
            [=](auto on) { return reduce_scatter(on, intra_node, inter_node, elements); });
    };
    const auto add_ring = [&](std::string of, auto prepare) {
        const std::uint64_t sent =
            static_cast<std::uint64_t>(size - 1) * (2 * elements / static_cast<std::size_t>(size));
        phases.push_back({std::move(of),
                          "16 bits",
                          true,
                          {.intra_node = 0, .inter_node = sent},
                          sent,
                          ranks.extent(2) == 1 ? 0 : sent,
                          prepare,
                          [] { return zeropp::volume{}; },
                          {}});
    };

    add_ring("ring all-gather", [=] { return ring_all_gather(rank, size, elements); });
    add_ring("ring reduce-scatter", [=] { return ring_reduce_scatter(size, elements); });
    add_gather("all-gather", plain);
    add_reduction("reduce-scatter", plain, plain);
    add_gather("qwZ all-gather", weights);
    add(
        "hpZ secondary gather", name(plain),
        [&](int r) {
            return zeropp::secondary_gather_volume(ranks, zeropp::whole_nodes, zeropp::wire_format_of(plain), elements,
                                                   r);
        },
        [=](auto on) { return secondary_gather(on, elements); });
    add_reduction("qgZ reduce-scatter", gradients_intra_node, gradients_inter_node);
    add(
        "update and gather", name(differences) + ", " + name(plain),
        [&](int r) {
            return zeropp::update_gather_volume(ranks, zeropp::wire_format_of(differences),
                                                zeropp::wire_format_of(plain), elements, 1, r);
        },
        [=](auto on) { return update_gather(on, elements); });
    add_reduction("reduce-scatter beside", rotated_intra_node, differences);
    return phases;
}

}  // namespace zeropp_scale
