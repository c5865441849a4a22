/// nccl_transport compiled with NCCL 2.18, the oldest version that it takes: without ncclAlltoAll. Under another name,
/// because the program also holds the one of the installed version.

#include <nccl.h>
#undef NCCL_VERSION_CODE
#define NCCL_VERSION_CODE NCCL_VERSION(2, 18, 1)
#undef NCCL_SHRINK_ABORT
#undef NCCL_REVOKE_DEFAULT
#define nccl_transport nccl_transport_of_2_18
#define nccl_family nccl_family_of_2_18
#include <zeropp/transport/nccl.hpp>

#include "simt/nccl_ranks.hpp"

namespace simt = zeropp_test::simt;
using zeropp::nccl_transport_of_2_18;
using zeropp_test::thrown;

namespace {

simt::any_transport nccl(zeropp::thread_transport& world) {
    return simt::any_transport(simt::connect<nccl_transport_of_2_18>(world));
}

}  // namespace

TEST_CASE("nccl 2.18: reduce-scatter of the collectives", "[simt][collectives][nccl]") {
    simt::check_reduce_scatters(nccl);
    CHECK(simt::live_communicators() == 0);
}

TEST_CASE("nccl 2.18: operations, splits and splits of splits", "[simt][nccl]") {
    const std::size_t exchanges = simt::calls("ncclAlltoAll");
    simt::check_splits<nccl_transport_of_2_18>();
    CHECK(simt::calls("ncclAlltoAll") == exchanges);
}

TEST_CASE("nccl 2.18: ranks cannot shrink", "[simt][nccl][shrink]") {
    simt::on_six_ranks<nccl_transport_of_2_18>(
        "shrink", [](auto& transport, zeropp::thread_transport& world, zeropp_test::expectations& expect) {
            const std::vector<int> excluded{(world.rank() + 1) % 6};
            expect.equal(thrown<zeropp::precondition_error>([&] { transport.shrink(excluded); }),
                         "nccl_transport: expected NCCL 2.27 or newer, to shrink, given an older one");
            transport.check();
        });
}

TEST_CASE("nccl 2.18: a failure in a group ends the group, and all communicators", "[simt][nccl][errors]") {
    for (const std::string entry_point : {"ncclGroupStart", "ncclSend", "ncclRecv", "ncclGroupEnd"}) {
        simt::check_failure<nccl_transport_of_2_18>(
            entry_point,
            [](auto& transport, const auto& exec, auto* send, auto* to) { transport.all_to_all(exec, send, to, 4); });
    }
}

TEST_CASE("nccl 2.18: groups that take their time are waited for", "[simt][nccl]") {
    const simt::leaves_nothing after;
    auto transport = nccl_transport_of_2_18::create(nccl_transport_of_2_18::unique_id(), 1, 0);
    const simt::owned_stream stream;
    const simt::device_array<int> send(std::vector<int>{7});
    const simt::device_array<int> received(1);
    const auto exchange = [&] {
        transport.all_to_all(stream.exec(), simt::bytes_of(send), simt::bytes_of(received), sizeof(int));
    };
    simt::settle_later("ncclGroupEnd", ncclSuccess);
    exchange();
    stream.exec().wait();
    CHECK(received.read() == send.read());
    simt::settle_later("ncclGroupEnd", ncclRemoteError);
    CHECK(thrown<zeropp::nccl_error>(exchange).starts_with("ncclGroupEnd: remote process exited"));
}
