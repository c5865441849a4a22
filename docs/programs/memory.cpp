/// \file
/// Where scratch comes from: nobody says (the call allocates), a workspace made once, or a resource of the program's.

#include <zeropp/zeropp.hpp>

#include <cstddef>
#include <cstdio>
#include <exception>
#include <memory_resource>
#include <vector>

int main() try {
    zeropp::run_on_threads(4, [](zeropp::thread_transport transport) {
        const zeropp::host exec;
        zeropp::communicator comm(zeropp::two_level(2, 2), transport);
        const zeropp::block_integer<8, 256> int8;
        const std::vector<float> shard(5000, 2.0f);
        std::vector<float> full(20'000);

        // [nobody]
        zeropp::quantized_all_gather(exec, comm, int8, shard, full);  // allocates, and blocks until it is complete
        // [nobody]

        // [workspace]
        const std::size_t bytes = zeropp::quantized_all_gather_workspace_bytes(comm.topology(), int8, full.size());
        zeropp::workspace<zeropp::host_space> scratch(bytes);  // aligned to 16 bytes, made once
        zeropp::quantized_all_gather(exec, comm, int8, shard, full, {}, scratch.view());  // allocates nothing
        // [workspace]

        // [resource]
        std::pmr::unsynchronized_pool_resource pool;  // of this rank
        zeropp::quantized_all_gather(exec, comm, int8, shard, full, {}, &pool);
        zeropp::workspace<zeropp::host_space> from_pool(bytes, &pool);
        // [resource]
        zeropp::quantized_all_gather(exec, comm, int8, shard, full, {}, from_pool.view());

        if (full.front() != 2.0f || full.back() != 2.0f) throw zeropp::error("wrong weights");
        std::printf("rank %d: %zu bytes of scratch for %zu elements\n", comm.rank(), bytes, full.size());
    });
} catch (const std::exception& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    return 1;
}
