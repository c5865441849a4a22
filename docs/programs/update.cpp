/// \file
/// Past ZeRO++: nodes keep the weights that their backward pass needs anyway, and forward sends how they have changed,
/// here in two bits; now and then `exact_update` brings them to the bits of the shards.

#include <zeropp/zeropp.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <vector>

int main() try {
    zeropp::run_on_threads(6, [](zeropp::thread_transport transport) {
        constexpr std::size_t n = 60'000;
        const zeropp::host exec;
        const zeropp::two_level nodes(2, 3);
        zeropp::communicator comm(nodes, zeropp::counting(transport, nodes));
        using int2_type = zeropp::block_integer<2, 64, zeropp::signed_extreme, zeropp::bfloat16>;
        const zeropp::hadamard<int2_type, 32> int2;  // "int2:64:signed:bf16:h32"

        std::vector<zeropp::bfloat16> shard(zeropp::partition(n, comm.size()).size(comm.rank()));
        std::vector<zeropp::bfloat16> weights(n);
        for (std::size_t i = 0; i != shard.size(); ++i) shard[i] = zeropp::bfloat16(std::sin(static_cast<float>(i)));

        using replica_type = zeropp::secondary_replica<zeropp::lossless<zeropp::bfloat16>, zeropp::host_space>;
        std::vector<std::byte> storage(replica_type::storage_bytes(comm.topology(), n));  // 1/k of the weights, in bf16
        replica_type replica(comm.topology(), comm.rank(), n, storage);
        std::uint64_t sent_at_first = 0;
        const std::uint64_t steps = 20;
        for (std::uint64_t step = 1; step <= steps; ++step) {
            zeropp::quantized_update_gather(exec, comm, int2, shard, replica, step, weights);  // forward: 2 bits across
            zeropp::secondary_partition_gather(exec, comm, replica, step, weights);  // backward: nothing across nodes
            if (step == 1) sent_at_first = comm.world().total().bytes_across;
            for (std::size_t i = 0; i != shard.size(); ++i) {
                const float change = 0.01f * std::cos(static_cast<float>(i) * static_cast<float>(step));
                shard[i] = zeropp::bfloat16(static_cast<float>(shard[i]) + change);
            }
        }
        const std::uint64_t sent = comm.world().total().bytes_across;

        // To the bit: once everything, and then, of one weight in a hundred, those alone.
        zeropp::exact_update(exec, comm, shard, replica, steps + 1);
        const std::uint64_t sent_whole = comm.world().total().bytes_across - sent;
        for (std::size_t i = 0; i < shard.size(); i += 100)
            shard[i] = zeropp::bfloat16(2 + static_cast<float>(shard[i]));
        zeropp::exact_update(exec, comm, shard, replica, steps + 2);
        const std::uint64_t sent_changes = comm.world().total().bytes_across - sent - sent_whole;
        zeropp::require_equal_replicas(exec, comm, replica);  // for when in doubt: compares hashes
        zeropp::secondary_partition_gather(exec, comm, replica, steps + 2, weights);
        const std::size_t own = zeropp::partition(n, comm.size()).offset(comm.rank());
        for (std::size_t i = 0; i != shard.size(); ++i) {
            if (weights[own + i].bits != shard[i].bits) throw zeropp::error("not the bits of the shard");
        }
        if (comm.rank() == 0) {
            const auto print = [](const char* what, std::uint64_t bytes) {
                std::printf("%-44s %6llu bytes across nodes from each rank\n", what,
                            static_cast<unsigned long long>(bytes));
            };
            print("the first step, whole weights:", sent_at_first);
            print("each later step, differences in 2 bits:", (sent - sent_at_first) / (steps - 1));
            print("to the bit, where all weights have changed:", sent_whole);
            print("to the bit, where one in a hundred has:", sent_changes);
        }
    });
} catch (const std::exception& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    return 1;
}
