// expect: mutable_array_in<|is_const_v|does not satisfy .mutable_array_in
#include <zeropp/zeropp.hpp>

#include <vector>

void gather(zeropp::communicator<zeropp::flat, zeropp::thread_transport>& comm, const std::vector<float>& shard,
            const std::vector<float>& full) {
    zeropp::quantized_all_gather(zeropp::host{}, comm, zeropp::block_integer<8, 256>{}, shard, full);
}
