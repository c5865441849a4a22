/// \file
/// Past ZeRO++: nodes keep the weights that their backward pass needs anyway, and forward sends how they have changed,
/// here in two bits.

#include <zeropp/zeropp.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

int main() try {
    zeropp::run_on_threads(6, [](zeropp::thread_transport transport) {
        constexpr std::size_t n = 60'000;
        const zeropp::host exec;
        const zeropp::two_level nodes(2, 3);
        zeropp::communicator comm(nodes, zeropp::counting(transport, nodes));
        using int2_type = zeropp::block_integer<2, 64, zeropp::signed_absmax, zeropp::bfloat16>;
        const zeropp::hadamard<int2_type, 32> int2;  // "int2:64:signed:bf16:h32"

        std::vector<zeropp::bfloat16> shard(zeropp::partition(n, comm.size()).size(comm.rank()));
        std::vector<zeropp::bfloat16> weights(n);
        for (std::size_t i = 0; i != shard.size(); ++i) shard[i] = zeropp::bfloat16(std::sin(static_cast<float>(i)));

        using replica_type = zeropp::secondary_replica<zeropp::cast_to<zeropp::bfloat16>, zeropp::host_space>;
        std::vector<std::byte> storage(replica_type::storage_bytes(comm.topology(), n));  // 1/k of the weights, in bf16
        replica_type replica(comm.topology(), comm.rank(), n, storage);
        std::uint64_t sent_at_first = 0;
        const std::uint64_t steps = 20;
        for (std::uint64_t step = 1; step <= steps; ++step) {
            for (std::size_t i = 0; i != shard.size(); ++i) {
                const float change = 0.01f * std::cos(static_cast<float>(i) * static_cast<float>(step));
                shard[i] = zeropp::bfloat16(static_cast<float>(shard[i]) + change);
            }
            zeropp::quantized_update(exec, comm, int2, shard, replica.to(step, weights));  // forward: 2 bits across
            zeropp::secondary_partition_gather(exec, comm, replica, step, weights);  // backward: nothing across nodes
            if (step == 1) sent_at_first = comm.world().total().inter_node_bytes;
        }
        const std::uint64_t sent = comm.world().total().inter_node_bytes;

        // However many steps were made, weights are off by no more than one difference loses.
        const std::size_t own = zeropp::partition(n, comm.size()).offset(comm.rank());
        float error = 0;
        for (std::size_t i = 0; i != shard.size(); ++i) {
            error = std::fmax(error, std::fabs(static_cast<float>(weights[own + i]) - static_cast<float>(shard[i])));
        }
        if (!(error < 0.05f)) throw zeropp::error("weights are off by " + std::to_string(error));
        if (comm.rank() == 0) {
            const auto print = [](const char* what, std::uint64_t bytes) {
                std::printf("%-44s %6llu bytes across nodes from each rank\n", what,
                            static_cast<unsigned long long>(bytes));
            };
            print("the first step, whole weights:", sent_at_first);
            print("each later step, differences in 2 bits:", (sent - sent_at_first) / (steps - 1));
        }
    });
} catch (const std::exception& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    return 1;
}
