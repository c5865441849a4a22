/// \file
/// Every rank keeps all weights, and a step sends how they have changed, in four bits. What one step's difference loses
/// is part of the next one's: after many steps no rank is farther from the weights than after one.

#include <zeropp/zeropp.hpp>

#include <cmath>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <vector>

int main() try {
    zeropp::run_on_threads(6, [](zeropp::thread_transport transport) {
        constexpr std::size_t n = 60'000;
        zeropp::communicator comm(zeropp::two_level(2, 3), transport);
        const zeropp::block_integer<4, 128, zeropp::signed_extreme, zeropp::bfloat16> int4;

        std::vector<float> shard(zeropp::partition(n, comm.size()).size(comm.rank()));
        for (std::size_t i = 0; i != shard.size(); ++i) shard[i] = std::sin(static_cast<float>(i));

        // The first time: whole weights. Then every rank has the same bits to refer to.
        std::vector<float> replica(n);
        zeropp::quantized_all_gather(zeropp::host{}, comm, zeropp::lossless<float>{}, shard, replica);

        zeropp::workspace<zeropp::host_space> scratch(
            zeropp::quantized_all_gather_workspace_bytes(comm.topology(), int4, n));
        for (int step = 1; step <= 100; ++step) {
            for (std::size_t i = 0; i != shard.size(); ++i) {  // an optimizer's step
                shard[i] += 0.001f * std::cos(static_cast<float>(i) * static_cast<float>(step));
            }
            zeropp::quantized_difference_all_gather(zeropp::host{}, comm, int4, shard, replica, scratch.view());
        }

        const std::size_t own = zeropp::partition(n, comm.size()).offset(comm.rank());
        float worst = 0;
        for (std::size_t i = 0; i != shard.size(); ++i) {
            worst = std::fmax(worst, std::fabs(replica[own + i] - shard[i]));
        }
        std::printf("rank %d: after 100 steps of 4 bits, replicas are off by %.6f at most\n", comm.rank(), worst);
        if (worst > 0.001f) throw zeropp::error("the error has added up");
    });
} catch (const std::exception& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    return 1;
}
