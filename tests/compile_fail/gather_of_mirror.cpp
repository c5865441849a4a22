// expect: secondary_in
#include <zeropp/codec/host.hpp>
#include <zeropp/collective/secondary_partition_gather.hpp>
#include <zeropp/elastic/shard_mirror.hpp>
#include <zeropp/quantizer/cast_to.hpp>
#include <zeropp/topology/two_level.hpp>
#include <zeropp/transport/threads.hpp>

void gather(zeropp::communicator<zeropp::two_level, zeropp::thread_transport>& comm,
            const zeropp::shard_mirror<zeropp::cast_to<float>, zeropp::host_space>& mirror,
            zeropp::host_view<float> full) {
    zeropp::secondary_partition_gather(zeropp::host(), comm, mirror, 1, full);
}
