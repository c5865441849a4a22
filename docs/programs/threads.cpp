/// \file
/// The host's codec on several threads, and collectives in the background, whose hops overlap.

#include <zeropp/zeropp.hpp>

#include <cstddef>
#include <cstdio>
#include <exception>
#include <vector>

int main() try {
    zeropp::run_on_threads(4, [](zeropp::thread_transport transport) {
        zeropp::communicator comm(zeropp::two_level(2, 2), transport);
        const zeropp::block_integer<8, 256> int8;
        const std::vector<float> shard(250'000, 3.0f);
        std::vector<float> full(1'000'000), again(full.size()), overlapped(full.size());

        // [threads]
        const zeropp::host_threads four(4);  // made once: three threads that wait, and the calling one
        zeropp::quantized_all_gather(four, comm, int8, shard, full);
        // [threads]

        // [queue]
        zeropp::workspace<zeropp::host_space> scratch(
            zeropp::quantized_all_gather_workspace_bytes(comm.topology(), int8, full.size()));
        const zeropp::host_queue queue(four);  // a thread of its own, and four's for what the codec does
        zeropp::quantized_all_gather(queue, comm, int8, shard, again, {}, scratch.view());  // returns at once
        const zeropp::host_queue::event gathered = queue.record();
        // ... computation that does not need the weights ...
        gathered.wait();
        // [queue]

        // [pipeline]
        const zeropp::host_queue inter_node;
        const zeropp::pipeline<zeropp::host_queue> both{queue, inter_node};
        zeropp::workspace<zeropp::host_space> in_chunks(
            zeropp::quantized_all_gather_workspace_bytes(comm.topology(), int8, full.size(), {.chunks = 8}));
        zeropp::quantized_all_gather(both, comm, int8, shard, overlapped, {.chunks = 8}, in_chunks.view());
        queue.wait();  // rethrows what went wrong, too
        // [pipeline]

        if (full != again || full != overlapped) throw zeropp::error("other bits");
        std::printf("rank %d: the same bits on threads, on a queue and in 8 chunks\n", comm.rank());
    });
} catch (const std::exception& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    return 1;
}
