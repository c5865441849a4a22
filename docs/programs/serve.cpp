/// \file
/// Reinforcement learning: one node trains, two others serve. Each serving node holds the whole weights and owns none
/// of them; the trainers push the differences.

#include <zeropp/zeropp.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <vector>

int main() try {
    zeropp::run_on_threads(6, [](zeropp::thread_transport transport) {
        constexpr std::size_t n = 60'000;
        const zeropp::host exec;
        const zeropp::two_level nodes(3, 2);
        zeropp::communicator comm(nodes, zeropp::counting(transport, nodes));
        const zeropp::block_integer<4, 128, zeropp::signed_absmax, zeropp::bfloat16> int4;  // "int4:128:signed:bf16"

        const zeropp::shard_owners trainers(nodes, 1);  // the ranks of the first node
        using replica_type = zeropp::secondary_replica<zeropp::cast_to<zeropp::bfloat16>, zeropp::host_space>;
        std::vector<std::byte> storage(replica_type::storage_bytes(trainers, n));
        replica_type replica(trainers, comm.rank(), n, storage);

        // Who owns no shards has an empty shard.
        std::vector<zeropp::bfloat16> shard;
        if (replica.owns()) {
            shard.assign(zeropp::partition(n, trainers.size()).size(replica.owner()), zeropp::bfloat16(1));
        }
        std::uint64_t sent[2] = {};
        std::vector<zeropp::bfloat16> weights(n);
        for (std::uint64_t version = 1; version <= 2; ++version) {
            if (version == 2) {
                for (std::size_t i = 0; i < shard.size(); i += 100) shard[i] = zeropp::bfloat16(2);
            }
            zeropp::quantized_update(exec, comm, int4, shard, replica.to(version));  // all ranks call it
            sent[version - 1] = comm.world().total().inter_node_bytes;
            zeropp::secondary_partition_gather(exec, comm, replica, version, weights);  // inside each node
        }
        if (static_cast<float>(weights[100]) != 2 || static_cast<float>(weights[101]) != 1) {
            throw zeropp::error("not the trainers' weights");
        }
        if (!replica.owns() && sent[1] != 0) throw zeropp::error("who serves has sent something");
        if (comm.rank() == 0) {
            const auto print = [](const char* what, std::uint64_t bytes) {
                std::printf("%-26s %6llu bytes across nodes from each trainer\n", what,
                            static_cast<unsigned long long>(bytes));
            };
            print("whole weights:", sent[0]);
            print("differences in 4 bits:", sent[1] - sent[0]);
        }
    });
} catch (const std::exception& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    return 1;
}
