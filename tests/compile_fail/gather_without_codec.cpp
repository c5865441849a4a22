// expect: no codec for this execution: include its entry header
#include <zeropp/collective/quantized_all_gather.hpp>
#include <zeropp/execution/host.hpp>
#include <zeropp/quantizer/block_integer.hpp>
#include <zeropp/topology/flat.hpp>
#include <zeropp/transport/threads.hpp>

void gather(zeropp::communicator<zeropp::flat, zeropp::thread_transport>& comm, zeropp::host_view<float> shard,
            zeropp::host_view<float> full) {
    zeropp::quantized_all_gather(zeropp::host(), comm, zeropp::block_integer<8, 256>(), shard, full);
}
