// expect: failed.*a reduce-scatter has a quantizer for each level, and no all-ga.*failed.*an all-reduce.*at least two
#include <zeropp/zeropp.hpp>

#include <vector>

// One quantizer too many, and one too few.
void reduce(zeropp::communicator<zeropp::flat, zeropp::thread_transport>& comm, const std::vector<float>& full,
            std::vector<float>& result) {
    const zeropp::block_integer<8, 256> q;
    zeropp::hierarchical_quantized_reduce_scatter(zeropp::host{}, comm, zeropp::hops{q, q, q}, full, result);
    zeropp::quantized_all_reduce(zeropp::host{}, comm, zeropp::hops{q, q}, full, result);
}
