#include <zeropp/zeropp.hpp>

#include <vector>

int main() {
    zeropp::run_on_threads(4, [](zeropp::thread_transport transport) {
        zeropp::communicator comm(zeropp::two_level(2, 2), transport);
        const zeropp::block_integer<8, 256> int8;
        const zeropp::block_integer<4, 128> int4;
        std::vector<float> shard(1000), full(4000);
        zeropp::hierarchical_quantized_reduce_scatter(zeropp::host{}, comm, zeropp::hops{int8, int4}, full, shard);

        using part = zeropp::secondary_partition<zeropp::cast_to<zeropp::bfloat16>, zeropp::host_space>;
        zeropp::workspace<zeropp::host_space> storage(part::storage_bytes({}, full.size(), 2));
        part secondary({}, full.size(), 2, comm.index(), storage.view());
        zeropp::workspace<zeropp::host_space> scratch(
            zeropp::quantized_all_gather_workspace_bytes(comm.topology(), int8, full.size()));
        zeropp::quantized_all_gather(zeropp::host{}, comm, int8, shard, full, {}, scratch.view());
        secondary.store(zeropp::host{}, full, 1);
        zeropp::secondary_partition_gather(zeropp::host{}, comm, secondary, 1, full);
    });
}
