// expect: an all-reduce has a quantizer for each level, at least two, and one for the all-gather phase
#include <zeropp/zeropp.hpp>

#include <vector>

void reduce(zeropp::communicator<zeropp::flat, zeropp::thread_transport>& comm, const std::vector<float>& full,
            std::vector<float>& result) {
    const zeropp::block_integer<8, 256> int8;
    zeropp::quantized_all_reduce(zeropp::host{}, comm, zeropp::hops{int8, int8}, full, result);
}
