/// Whole collectives over NCCL, between processes that share a GPU; with the argument `graph`, in CUDA graphs.

#include "gpu/collectives.cuh"
#include "gpu/nccl_job.hpp"
#include "simt/nccl_graph.hpp"

#include <zeropp/nccl.hpp>

#include <cstddef>
#include <cstdio>
#include <string>
#include <vector>

namespace {

namespace gpu = zeropp_test::gpu;
using zeropp::nccl_transport;
using zeropp_test::expectations;

template <class T>
void check(const zeropp::two_level& ranks, nccl_transport& world, expectations& expect) {
    const std::size_t n = 40'003;
    std::vector<int> all;
    for (int r = 0; r != world.size(); ++r) all.push_back(r);
    gpu::match_host<T>(ranks, world.split(all), n, gpu::on_host_threads<T>(ranks, n), expect);
}

/// What the first ranks have reaches all, in place, for any number of them.
void check_broadcasts(nccl_transport& world, expectations& expect) {
    const gpu::owned_stream stream;
    for (int roots = 1; roots <= world.size(); ++roots) {
        const bool is_root = world.rank() < roots;
        std::vector<int> values(static_cast<std::size_t>(roots), -1), all;
        if (is_root) values[static_cast<std::size_t>(world.rank())] = 100 * world.rank() + roots;
        for (int r = 0; r != roots; ++r) all.push_back(100 * r + roots);
        const gpu::device_array<int> array(values);
        const std::byte* const own = reinterpret_cast<const std::byte*>(array.data() + (is_root ? world.rank() : 0));
        world.broadcast(stream.exec(), is_root ? own : nullptr, reinterpret_cast<std::byte*>(array.data()), sizeof(int),
                        roots);
        zeropp::wait_for(world, stream.exec());
        expect(array.read() == all, "what " + std::to_string(roots) + " roots have");
        expect(array.intact(), "no byte beside the array of a broadcast");
    }
}

/// What one rank of `ranks` does.
void run_rank(int ranks, int rank, const gpu::id_channel& channel, expectations& expect) {
    auto world = nccl_transport::create(channel.share(ranks, rank), ranks, rank);
    for (int per_node = 1; per_node <= ranks; per_node *= 2) {
        check<zeropp::bfloat16>(zeropp::two_level::of_size(ranks, per_node), world, expect);
    }
    check<float>(zeropp::two_level::of_size(ranks, 2), world, expect);
    check_broadcasts(world, expect);
    world.check();
}

void run_rank_with_graphs(int ranks, int rank, const gpu::id_channel& channel, expectations& expect) {
    auto world = nccl_transport::create(channel.share(ranks, rank), ranks, rank);
    std::vector<int> all;
    for (int r = 0; r != ranks; ++r) all.push_back(r);
    for (int per_node = 1; per_node <= ranks; per_node *= 2) {
        zeropp_test::simt::check_captured_collectives(zeropp::two_level::of_size(ranks, per_node), world.split(all),
                                                      expect);
    }
}

}  // namespace

int main(int argc, char** argv) {
    const bool graphs = argc == 2 && argv[1] == std::string("graph");
    for (const int ranks : {2, 4}) {
        const int result = gpu::run_job(ranks, [&](int rank, const gpu::id_channel& channel, expectations& expect) {
            graphs ? run_rank_with_graphs(ranks, rank, channel, expect) : run_rank(ranks, rank, channel, expect);
        });
        if (result == gpu::skipped) std::printf("skipped: no GPU here\n");
        if (result != 0) return result;
        std::printf("passed: %d ranks on one GPU\n", ranks);
        std::fflush(stdout);
    }
    return 0;
}
