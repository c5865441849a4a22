// expect: failed.*a reduce-.*failed.*a reduce-.*failed.*an all-.*failed.*an all-.*failed.*error_feedback: expected a
#include <zeropp/zeropp.hpp>

#include <vector>

using int8 = zeropp::block_integer<8, 256>;
using residuals = zeropp::error_feedback<zeropp::hops<int8, int8>, zeropp::residuals_in_int8, zeropp::host_space>;

// One quantizer too few, and one too many.
void reduce(zeropp::communicator<zeropp::three_level, zeropp::thread_transport>& comm, std::vector<float>& full,
            std::vector<float>& shard) {
    const int8 q;
    zeropp::hierarchical_quantized_reduce_scatter(zeropp::host{}, comm, zeropp::hops{q, q}, full, shard);
    zeropp::hierarchical_quantized_reduce_scatter(zeropp::host{}, comm, zeropp::hops{q, q, q, q}, full, shard);
    zeropp::quantized_all_reduce(zeropp::host{}, comm, zeropp::hops{q, q, q}, full, full);
    zeropp::quantized_all_reduce(zeropp::host{}, comm, zeropp::hops{q, q, q, q, q}, full, full);
    residuals::storage_bytes(comm.topology(), 100);
}
