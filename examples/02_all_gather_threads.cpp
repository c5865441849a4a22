/// \file
/// The first program: four ranks, threads of this process, each hold a quarter of a tensor and gather all of it.

#include <zeropp/zeropp.hpp>

#include <cmath>
#include <cstdio>
#include <exception>
#include <vector>

int main() try {
    zeropp::run_on_threads(4, [](zeropp::thread_transport transport) {
        zeropp::communicator comm(zeropp::two_level(2, 2), transport);  // 2 nodes of 2 ranks
        const zeropp::block_integer<8, 256> int8;                       // 8 bits each, one scale for 256 elements
        std::vector<float> shard(1000), full(4000);
        for (float x = float(comm.rank()); float& weight : shard) weight = x += 0.001f;

        zeropp::quantized_all_gather(zeropp::host{}, comm, int8, shard, full);

        float error = 0;
        for (std::size_t i = 0; i != 4000; ++i) error = std::fmax(error, std::fabs(full[i] - 0.001f * float(i + 1)));
        std::printf("rank %d sent its weights as %zu bytes, not 4000; it has all 4000 weights, off by %.4f at most\n",
                    comm.rank(), zeropp::wire_bytes(int8, shard.size()), error);
        if (error > 0.016f) throw zeropp::error("the error is larger than half a step of 8 bits");
    });
} catch (const std::exception& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    return 1;
}
