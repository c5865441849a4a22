/// \file
/// Local steps: two islands of two ranks train by themselves, and exchange their progress every ten steps, in 4 bits.

#include <zeropp/local_steps.hpp>

#include <cmath>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <random>
#include <string>
#include <vector>

int main() try {
    zeropp::run_on_threads(4, [](zeropp::thread_transport transport) {
        constexpr std::size_t n = 60'000;
        const zeropp::host exec;
        const zeropp::two_level islands(2, 2);
        zeropp::counting world(transport, islands);
        const int rank = world.rank();
        // Inner steps use `island` as a world of its own; outer steps join ranks with equal shards.
        zeropp::communicator island(zeropp::flat(2), world.split(zeropp::peer_ranks(islands, 0, rank)));
        zeropp::communicator between(zeropp::flat(2), world.split(zeropp::peer_ranks(islands, 1, rank)));

        const zeropp::hadamard<zeropp::block_integer<4, 128, zeropp::signed_absmax, zeropp::bfloat16>, 32> int4;
        const zeropp::hops by_hop{int4, int4, int4};
        const zeropp::outer_options options{.every = 10, .learning_rate = 0.7f, .momentum = 0.6f};

        std::vector<float> shard(zeropp::partition(n, island.size()).size(island.rank()));  // equal in all islands
        using outer_type = zeropp::outer_optimizer<zeropp::host_space>;
        zeropp::workspace<zeropp::host_space> state(outer_type::storage_bytes(shard));  // 12 bytes for each element
        outer_type outer(between.topology(), shard, state.view());
        zeropp::workspace<zeropp::host_space> scratch(
            zeropp::outer_step_workspace_bytes(between.topology(), by_hop, outer, options));
        outer.start(exec, shard);

        // The optimum is 1 everywhere; each island sees it with noise of its own. One inner step:
        std::mt19937 random(static_cast<unsigned>(rank));
        std::normal_distribution<float> noise;
        const int steps = 200;
        for (int step = 1; step <= steps; ++step) {
            for (float& w : shard) w -= 0.02f * (w - 1.0f + noise(random));
            if (options.begins(0, step))
                zeropp::outer_step(exec, between, by_hop, shard, outer, options, scratch.view());
        }

        double squares = 0;
        for (const float w : shard) squares += std::pow(static_cast<double>(w) - 1.0, 2);
        const double error = std::sqrt(squares / static_cast<double>(shard.size()));
        if (!(error < 0.15)) throw zeropp::error("weights are off by " + std::to_string(error));
        if (rank == 0) {
            const double bits = 8.0 * static_cast<double>(world.total().inter_node_bytes) / steps;
            std::printf("each rank sends %.2f bits a step for each of its %zu weights to the other island\n",
                        bits / static_cast<double>(shard.size()), shard.size());
        }
    });
} catch (const std::exception& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    return 1;
}
