// expect: a reduce-scatter has a quantizer for each level, and no all-gather phase
#include <zeropp/zeropp.hpp>

#include <vector>

void reduce(zeropp::communicator<zeropp::flat, zeropp::thread_transport>& comm, const std::vector<float>& full,
            std::vector<float>& shard) {
    const zeropp::block_integer<8, 256> int8;
    zeropp::hierarchical_quantized_reduce_scatter(zeropp::host{}, comm, zeropp::hops{int8, int8, int8}, full, shard);
}
