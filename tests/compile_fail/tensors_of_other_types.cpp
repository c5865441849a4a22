// expect: failed.*tensors of a call must have the same element type.*failed.*must have the same element type
#include <zeropp/zeropp.hpp>

#include <vector>

using communicator = zeropp::communicator<zeropp::flat, zeropp::thread_transport>;
const zeropp::block_integer<8, 256> q;

void gather(communicator& comm, const std::vector<zeropp::half>& shard, std::vector<float>& full) {
    zeropp::quantized_all_gather(zeropp::host{}, comm, q, shard, full);
}

void reduce(communicator& comm, const std::vector<zeropp::bfloat16>& full, std::vector<float>& shard) {
    zeropp::hierarchical_quantized_reduce_scatter(zeropp::host{}, comm, zeropp::hops{q, q}, full, shard);
}
