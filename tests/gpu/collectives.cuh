#pragma once
/// \file
/// The collectives as one program for host and GPU: what a rank ends with must be the same bits.

#include "gpu/device.hpp"
#include "support/difference.hpp"
#include "support/expectations.hpp"
#include "support/host_array.hpp"
#include "support/samples.hpp"

#include <zeropp/cuda.cuh>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace zeropp_test::gpu {

template <class T, class Space>
struct array_of {
    using type = host_array<T>;
};
template <class T>
struct array_of<T, zeropp::device_space> {
    using type = device_array<T>;
};

/// What one rank ends with.
template <class T>
struct outcome {
    std::vector<T> gathered;
    std::vector<T> gathered_from_secondary;
    std::vector<T> mean;
    std::vector<T> sum_in_chunks;
    std::vector<T> updated;

    /// "" if all of it is the same.
    std::string difference_from(const outcome& expected) const {
        std::string text;
        const auto compare = [&](const char* what, const std::vector<T>& given, const std::vector<T>& wanted) {
            const std::string d = difference(given, wanted);
            if (!d.empty()) text += std::string(what) + ": " + d + "; ";
        };
        compare("quantized_all_gather", gathered, expected.gathered);
        compare("secondary_partition_gather", gathered_from_secondary, expected.gathered_from_secondary);
        compare("hierarchical_quantized_reduce_scatter", mean, expected.mean);
        compare("hierarchical_quantized_reduce_scatter in chunks", sum_in_chunks, expected.sum_in_chunks);
        compare("quantized_update", updated, expected.updated);
        return text;
    }
};

template <class T>
std::vector<T> input(std::size_t n, int seed) {
    std::vector<T> values;
    for (const float x : mixed_floats(n, static_cast<std::uint64_t>(seed))) {
        values.push_back(zeropp::element_traits<T>::from_float(x));
    }
    return values;
}

/// Runs every collective on tensors of n elements. `other` is a second execution for the pipeline of hops. Quantizers
/// have different widths, blocks and schemes in the two hops.
template <class T, zeropp::execution Execution, zeropp::topology Topology, class Transport>
outcome<T> run_collectives(const Execution& exec, const Execution& other, const Topology& ranks, Transport world,
                           std::size_t n) {
    using space = typename Execution::space;
    using array = typename array_of<T, space>::type;
    const zeropp::block_integer<8, 256> eight_bits;
    const zeropp::block_integer<4, 128, zeropp::signed_absmax, zeropp::half> four_bits;
    using secondary_type = zeropp::secondary_partition<zeropp::cast_to<zeropp::bfloat16>, space>;

    zeropp::communicator comm(ranks, std::move(world));
    const std::size_t own = zeropp::partition(n, comm.size()).size(comm.rank());
    outcome<T> result;
    {
        array shard(input<T>(own, comm.rank()));
        array full(n);
        zeropp::workspace<space> scratch(zeropp::quantized_all_gather_workspace_bytes(ranks, eight_bits, n));
        zeropp::workspace<space> storage(secondary_type::storage_bytes({}, n, comm.group_size()));
        secondary_type secondary({}, n, comm.group_size(), comm.index(), storage.view());
        zeropp::quantized_all_gather(exec, comm, eight_bits, shard.view(), full.view(), {}, scratch.view());
        secondary.store(exec, full.view(), 3);
        array again(n);
        zeropp::secondary_partition_gather(exec, comm, secondary, 3, again.view());
        exec.wait();
        result.gathered = full.read();
        result.gathered_from_secondary = again.read();
    }
    {
        array full(input<T>(n, 100 + comm.rank()));
        array shard(own);
        zeropp::hierarchical_quantized_reduce_scatter(exec, comm, zeropp::hops{eight_bits, four_bits}, full.view(),
                                                      shard.view(), {.operation = zeropp::reduction::mean});
        exec.wait();
        result.mean = shard.read();

        const zeropp::reduce_options in_chunks{.chunks = 4, .accumulate = true};
        array sum(input<T>(own, 200));
        zeropp::workspace<space> scratch(zeropp::hierarchical_quantized_reduce_scatter_workspace_bytes(
            ranks, zeropp::hops{eight_bits, four_bits}, n, in_chunks));
        const zeropp::pipeline<Execution> two{exec, other};
        zeropp::hierarchical_quantized_reduce_scatter(two, comm, zeropp::hops{eight_bits, four_bits}, full.view(),
                                                      sum.view(), in_chunks, scratch.view());
        exec.wait();
        result.sum_in_chunks = sum.read();
    }
    {
        using replica_type = zeropp::secondary_replica<zeropp::cast_to<T>, space>;
        zeropp::workspace<space> storage(replica_type::storage_bytes(ranks, n));
        replica_type replica(ranks, comm.rank(), n, storage.view());
        std::vector<T> weights = input<T>(own, comm.rank());
        array full(n);
        for (std::uint64_t version = 1; version != 4; ++version) {
            array shard(weights);
            zeropp::quantized_update(exec, comm, four_bits, shard.view(), replica.to(version, full.view()));
            for (std::size_t i = version; i < own; i += 100) weights[i] = T(static_cast<float>(i % 50));
        }
        exec.wait();
        result.updated = full.read();
    }
    return result;
}

/// What each rank ends with on the host, ranks being threads of this process.
template <class T, zeropp::topology Topology>
std::vector<outcome<T>> on_host_threads(const Topology& ranks, std::size_t n) {
    std::vector<outcome<T>> outcomes(static_cast<std::size_t>(ranks.size()));
    zeropp::run_on_threads(ranks.size(), [&](zeropp::thread_transport world) {
        const auto rank = static_cast<std::size_t>(world.rank());
        outcomes[rank] = run_collectives<T>(zeropp::host{}, zeropp::host{}, ranks, std::move(world), n);
    });
    return outcomes;
}

/// Expects this rank, on streams of its own, to end with what the host has.
template <class T, zeropp::topology Topology, class Transport>
void match_host(const Topology& ranks, Transport world, std::size_t n, const std::vector<outcome<T>>& on_host,
                expectations& expect) {
    const owned_stream exec;
    const owned_stream other;
    const auto rank = static_cast<std::size_t>(world.rank());
    const outcome<T> given = run_collectives<T>(exec.exec(), other.exec(), ranks, std::move(world), n);
    expect.equal(given.difference_from(on_host[rank]), "");
}

}  // namespace zeropp_test::gpu
