// expect: tensors of a call must have the same element type
#include <zeropp/zeropp.hpp>

#include <vector>

void gather(zeropp::communicator<zeropp::flat, zeropp::thread_transport>& comm, const std::vector<zeropp::half>& shard,
            std::vector<float>& full) {
    zeropp::quantized_all_gather(zeropp::host{}, comm, zeropp::block_integer<8, 256>{}, shard, full);
}
