#include <zeropp/zeropp.hpp>

#include <vector>

int main() {
    zeropp::run_on_threads(4, [](zeropp::thread_transport transport) {
        zeropp::communicator comm(zeropp::two_level(2, 2), transport);
        std::vector<float> full(4000), shard(1000);
        zeropp::hierarchical_quantized_reduce_scatter(
            zeropp::host{}, comm, zeropp::hops{zeropp::block_integer<8, 256>(), zeropp::block_integer<4, 128>()}, full,
            shard);
    });
}
