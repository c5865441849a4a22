#include <zeropp/zeropp.hpp>

#include <vector>

int main() {
    zeropp::run_on_threads(4, [](zeropp::thread_transport transport) {
        zeropp::communicator comm(zeropp::two_level(2, 2), transport);
        std::vector<float> shard(1000), full(4000);
        zeropp::quantized_all_gather(zeropp::host{}, comm, zeropp::block_integer<8, 256>(), shard, full);
    });
}
