// expect: tensors of a call must have the same element type
#include <zeropp/zeropp.hpp>

#include <vector>

void reduce(zeropp::communicator<zeropp::flat, zeropp::thread_transport>& comm,
            const std::vector<zeropp::bfloat16>& full, std::vector<float>& shard) {
    const zeropp::block_integer<8, 256> q;
    zeropp::hierarchical_quantized_reduce_scatter(zeropp::host{}, comm, zeropp::hops{q, q}, full, shard);
}
