#pragma once
/// \file
/// CUDA graphs with NCCL's calls in them, for the doubles and for ranks on a GPU.

#include "gpu/capture.hpp"
#include "simt/device.hpp"
#include "support/difference.hpp"
#include "support/expectations.hpp"
#include "support/samples.hpp"

#include <zeropp/collective/hierarchical_quantized_reduce_scatter.hpp>
#include <zeropp/collective/pipeline.hpp>
#include <zeropp/collective/quantized_all_gather.hpp>
#include <zeropp/collective/quantized_all_to_all.hpp>
#include <zeropp/quantizer/block_integer.hpp>
#include <zeropp/topology/two_level.hpp>
#include <zeropp/transport/communicator.hpp>
#include <zeropp/transport/nccl.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace zeropp_test::simt {

/// Expects replays of collectives on two streams to leave what calls leave, each time for other tensors.
template <zeropp::topology Topology>
void check_captured_collectives(const Topology& ranks, zeropp::nccl_transport world, expectations& expect) {
    const zeropp::block_integer<8, 256> eight_bits;
    const zeropp::hops hops{eight_bits, zeropp::block_integer<4, 128>()};
    const std::size_t part = 5003;
    const std::size_t n = part * static_cast<std::size_t>(ranks.size());
    const zeropp::gather_options in_chunks{.chunks = 3};
    const owned_stream first, second;
    const zeropp::pipeline exec(first.exec(), second.exec());
    zeropp::communicator comm(ranks, std::move(world));
    device_array<float> full(n);
    const device_array<float> exchanged(n), gathered(n), reduced(part);
    const device_array<std::byte> scratch(
        std::max({quantized_all_to_all_workspace_bytes(ranks, eight_bits, n),
                  quantized_all_gather_workspace_bytes(ranks, eight_bits, n, in_chunks),
                  hierarchical_quantized_reduce_scatter_workspace_bytes(ranks, hops, n)}));
    const auto call = [&] {
        quantized_all_to_all(first.exec(), comm, eight_bits, full.view(), exchanged.view(), scratch.view());
        quantized_all_gather(exec, comm, eight_bits, full.view().subview(0, part), gathered.view(), in_chunks,
                             scratch.view());
        hierarchical_quantized_reduce_scatter(exec, comm, hops, full.view(), reduced.view(), {}, scratch.view());
    };
    const auto results_of = [&](std::uint64_t seed, auto run) {
        full.write(mixed_floats(n, 100 * seed + static_cast<std::uint64_t>(comm.rank())));
        run();
        first.exec().wait();
        return std::vector{exchanged.read(), gathered.read(), reduced.read()};
    };
    // The calls come first: NCCL connects on first use.
    std::vector<std::vector<std::vector<float>>> expected;
    for (const std::uint64_t seed : {1u, 2u}) expected.push_back(results_of(seed, call));
    // NCCL's own threads may allocate meanwhile.
    const gpu::captured graph(first.native(), cudaStreamCaptureModeThreadLocal, call);
    for (const std::uint64_t seed : {1u, 2u}) {
        const auto given = results_of(seed, [&] { graph.run(first.native()); });
        for (std::size_t i = 0; i != given.size(); ++i) expect.equal(difference(given[i], expected[seed - 1][i]), "");
    }
    expect(scratch.intact(), "no byte beside the scratch");
}

/// Gathers a number of each rank, in place.
inline void gather(zeropp::nccl_transport& world, const owned_stream& stream, const device_array<int>& numbers) {
    world.all_gather(stream.exec(), reinterpret_cast<const std::byte*>(numbers.data() + world.rank()),
                     reinterpret_cast<std::byte*>(numbers.data()), sizeof(int));
}

/// What a rank has found out about a failure.
struct noticed_failure {
    std::string error;
    std::chrono::duration<double> waited;  // until its communicators had ended
};

/// Captures a gather of `numbers`, one for each rank, and launches it after fail(), which lets a rank fail. The graph
/// lives for `alive` after that launch.
template <class Fail>
noticed_failure failure_with_graph(zeropp::nccl_transport& world, const owned_stream& stream,
                                   const device_array<int>& numbers, std::chrono::milliseconds alive, Fail fail) {
    std::optional<gpu::captured> graph;
    graph.emplace(stream.native(), cudaStreamCaptureModeThreadLocal, [&] { gather(world, stream, numbers); });
    graph->run(stream.native());
    stream.exec().wait();
    fail();
    graph->run(stream.native());
    const auto began = std::chrono::steady_clock::now();
    const std::jthread later([&] {
        std::this_thread::sleep_for(alive);
        graph.reset();
    });
    const std::string error = thrown<zeropp::nccl_error>([&] {
        while (std::chrono::steady_clock::now() < began + std::chrono::seconds(20)) {
            world.check();
            std::this_thread::sleep_for(std::chrono::milliseconds(10));
        }
    });
    return {error, std::chrono::steady_clock::now() - began};
}

}  // namespace zeropp_test::simt
