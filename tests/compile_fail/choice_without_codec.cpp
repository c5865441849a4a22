// expect: no codec for this execution: include its entry header
#include <zeropp/collective/adaptive_precision.hpp>
#include <zeropp/execution/host.hpp>
#include <zeropp/quantizer/block_integer.hpp>
#include <zeropp/topology/flat.hpp>
#include <zeropp/transport/threads.hpp>

using policy = zeropp::adaptive_precision<zeropp::block_integer<4, 128>, zeropp::block_integer<8, 256>>;

void choose(zeropp::communicator<zeropp::flat, zeropp::thread_transport>& comm, const policy& p,
            zeropp::host_view<float> data, zeropp::host_view<std::byte> scratch) {
    p.choose(zeropp::host(), comm, data, scratch);
}
