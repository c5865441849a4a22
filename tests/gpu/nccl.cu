/// NCCL with one rank, which every machine with a GPU has.

#include "gpu/capture.hpp"
#include "gpu/collectives.cuh"
#include "support/catch.hpp"

#include <zeropp/nccl.hpp>

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace gpu = zeropp_test::gpu;
using zeropp::nccl_transport;
using zeropp_test::expectations;
using zeropp_test::thrown;

namespace {

nccl_transport alone() { return nccl_transport::create(nccl_transport::unique_id(), 1, 0); }

template <class T, zeropp::topology Topology>
void check(const Topology& ranks, nccl_transport world, std::size_t n) {
    expectations expect;
    gpu::match_host<T>(ranks, std::move(world), n, gpu::on_host_threads<T>(ranks, n), expect);
    CHECK(expect.unmet() == "");
}

}  // namespace

TEST_CASE("nccl: all collectives with one rank", "[gpu][nccl]") {
    check<zeropp::bfloat16>(zeropp::flat(1), alone(), 40'003);
    check<float>(zeropp::two_level(1, 1), alone(), 5);
}

TEST_CASE("nccl: a split, and a communicator of the caller's", "[gpu][nccl]") {
    nccl_transport world = alone();
    CHECK(world.rank() == 0);
    CHECK(world.size() == 1);
    const std::vector<int> members{0};
    check<zeropp::bfloat16>(zeropp::flat(1), world.split(members), 1000);
    check<zeropp::bfloat16>(zeropp::flat(1), nccl_transport::borrow(world.native()), 1000);
    world.check();
}

TEST_CASE("nccl: an all-gather and a reduce-scatter in a CUDA graph", "[gpu][nccl][graph]") {
    const std::size_t n = 20'003;
    const zeropp::flat ranks(1);
    const zeropp::block_integer<8, 256> q;
    const auto values = gpu::input<float>(n, 1);
    const gpu::owned_stream stream;
    zeropp::communicator comm(ranks, alone());
    const gpu::device_array<float> full(values);
    gpu::device_array<float> shard(n);
    gpu::device_array<float> copy(n);
    zeropp::workspace<zeropp::device_space> scratch(
        zeropp::hierarchical_quantized_reduce_scatter_workspace_bytes(ranks, zeropp::hops{q, q}, n));
    const auto work = [&] {
        comm.world().all_gather(stream.exec(), reinterpret_cast<const std::byte*>(full.data()),
                                reinterpret_cast<std::byte*>(copy.data()), n * sizeof(float));
        zeropp::hierarchical_quantized_reduce_scatter(stream.exec(), comm, zeropp::hops{q, q}, full.view(),
                                                      shard.view(), {}, scratch.view());
    };
    // Once outside of the graph: NCCL connects on first use.
    work();
    stream.exec().wait();
    const auto expected = shard.read();
    // NCCL's own threads may allocate meanwhile.
    const gpu::captured graph(stream.native(), cudaStreamCaptureModeThreadLocal, work);
    for (int run = 0; run != 2; ++run) {
        shard.fill();
        copy.fill();
        graph.run(stream.native());
        stream.exec().wait();
        CHECK(zeropp_test::difference(copy.read(), values) == "");
        CHECK(zeropp_test::difference(shard.read(), expected) == "");
    }
    comm.world().check();
}

TEST_CASE("nccl: NCCL's text is in the exception", "[gpu][nccl][errors]") {
    const std::string text =
        thrown<zeropp::nccl_error>([] { nccl_transport::create(nccl_transport::unique_id(), 1, 5); });
    INFO(text);
    CHECK(text.find("ncclCommInitRankConfig: invalid argument") != std::string::npos);
}
