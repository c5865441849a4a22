/// \file
/// hpZ: the forward pass gathers weights between nodes and stores a copy in each node. The backward pass gathers that
/// copy, without a byte between nodes. Reading an outdated copy is an error.

#include <zeropp/zeropp.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <vector>

int main() try {
    constexpr std::size_t elements = 100'000;

    zeropp::run_on_threads(4, [](zeropp::thread_transport transport) {
        const zeropp::two_level nodes(2, 2);
        zeropp::communicator comm(nodes, zeropp::counting(transport, nodes));
        const zeropp::block_integer<8, 256> int8;

        std::vector<float> shard(zeropp::partition(elements, comm.size()).size(comm.rank()));
        for (std::size_t i = 0; i != shard.size(); ++i) shard[i] = std::sin(static_cast<float>(i));

        // This rank's half of the tensor, in 16 bits, in the caller's memory.
        using secondary_type = zeropp::secondary_partition<zeropp::cast_to<zeropp::bfloat16>, zeropp::host_space>;
        zeropp::workspace<zeropp::host_space> storage(secondary_type::storage_bytes({}, elements, comm.group_size()));
        secondary_type secondary({}, elements, comm.group_size(), comm.index(), storage.view());

        // Forward: the version is any number that changes with the weights, here the training step.
        const std::uint64_t step = 7;
        std::vector<float> forward(elements), backward(elements);
        zeropp::workspace<zeropp::host_space> scratch(
            zeropp::quantized_all_gather_workspace_bytes(nodes, int8, elements));
        zeropp::quantized_all_gather(zeropp::host{}, comm, int8, shard, forward, {}, scratch.view());
        secondary.store(zeropp::host{}, forward, step);
        const zeropp::traffic sent_forward = comm.world().total();

        comm.world().reset();
        zeropp::secondary_partition_gather(zeropp::host{}, comm, secondary, step, backward);
        const zeropp::traffic sent_backward = comm.world().total();

        bool refused = false;
        try {
            zeropp::secondary_partition_gather(zeropp::host{}, comm, secondary, step + 1, backward);
        } catch (const zeropp::precondition_error&) {
            refused = true;
        }
        bool same = true;
        for (std::size_t i = 0; i != elements; ++i) same &= std::fabs(backward[i] - forward[i]) <= 0.002f;
        std::printf("rank %d: forward sent %llu bytes across nodes, backward %llu; stale weights refused: %s\n",
                    comm.rank(), static_cast<unsigned long long>(sent_forward.inter_node_bytes),
                    static_cast<unsigned long long>(sent_backward.inter_node_bytes), refused ? "yes" : "no");
        if (!same || !refused || sent_backward.inter_node_bytes != 0) throw zeropp::error("wrong result");
    });
} catch (const std::exception& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    return 1;
}
