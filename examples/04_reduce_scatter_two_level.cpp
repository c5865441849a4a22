/// \file
/// The gradient reduce-scatter in two hops: 8 bits within the node, where links are fast, and 4 bits between nodes.
/// Each rank ends with its shard of the mean over all ranks.

#include <zeropp/zeropp.hpp>

#include <cmath>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <vector>

namespace {
float gradient(int rank, std::size_t i) { return std::sin(static_cast<float>(i)) + 0.1f * static_cast<float>(rank); }
}  // namespace

int main() try {
    constexpr int nodes = 3, ranks_per_node = 2, ranks = nodes * ranks_per_node;
    constexpr std::size_t elements = 600'000;

    zeropp::run_on_threads(ranks, [](zeropp::thread_transport transport) {
        // `counting` sends through `transport` and counts the bytes.
        const zeropp::two_level topology(nodes, ranks_per_node);
        zeropp::communicator comm(topology, zeropp::counting(transport, topology));
        const zeropp::block_integer<8, 256> int8;
        const zeropp::block_integer<4, 128, zeropp::signed_absmax, zeropp::half> int4;

        std::vector<float> full(elements);
        for (std::size_t i = 0; i != full.size(); ++i) full[i] = gradient(comm.rank(), i);
        const zeropp::partition part(elements, ranks);
        std::vector<float> shard(part.size(comm.rank()));
        zeropp::hierarchical_quantized_reduce_scatter(zeropp::host{}, comm, zeropp::hops{int8, int4}, full, shard,
                                                      {.operation = zeropp::reduction::mean, .chunks = 4});

        float worst = 0;
        for (std::size_t i = 0; i != shard.size(); ++i) {
            const float mean = gradient(0, part.offset(comm.rank()) + i) + 0.1f * (ranks - 1) / 2;
            worst = std::fmax(worst, std::fabs(shard[i] - mean));
        }
        const zeropp::traffic sent = comm.world().total();
        std::printf("rank %d: %llu bytes inside the node, %llu across, largest error of the mean %.4f\n", comm.rank(),
                    static_cast<unsigned long long>(sent.intra_node_bytes),
                    static_cast<unsigned long long>(sent.inter_node_bytes), worst);
        // A rank sends one 4-bit message to each of two other nodes: fewer bytes than its shard has in fp32.
        if (worst > 0.2f || sent.inter_node_bytes > part.slice_size() * sizeof(float))
            throw zeropp::error("wrong result");
    });
} catch (const std::exception& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    return 1;
}
