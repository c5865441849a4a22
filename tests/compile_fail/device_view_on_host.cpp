// expect: array_in<
#include <zeropp/zeropp.hpp>

#include <vector>

void gather(zeropp::communicator<zeropp::flat, zeropp::thread_transport>& comm, zeropp::device_view<float> shard,
            std::vector<float>& full) {
    zeropp::quantized_all_gather(zeropp::host{}, comm, zeropp::block_integer<8, 256>{}, shard, full);
}
