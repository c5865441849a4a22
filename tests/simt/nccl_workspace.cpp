#include <zeropp/transport/nccl_workspace.hpp>

#include "simt/nccl_ranks.hpp"

#include <zeropp/collective/quantized_all_gather.hpp>
#include <zeropp/layout/partition.hpp>
#include <zeropp/quantizer/block_integer.hpp>
#include <zeropp/topology/flat.hpp>
#include <zeropp/topology/two_level.hpp>
#include <zeropp/transport/communicator.hpp>
#include <zeropp/transport/nccl.hpp>

#include <chrono>
#include <cstddef>
#include <vector>

namespace simt = zeropp_test::simt;
using zeropp::nccl_transport;
using zeropp::nccl_workspace;
using zeropp_test::expectations;
using zeropp_test::thrown;

namespace {

constexpr std::size_t n = 1003;
constexpr zeropp::block_integer<8, 128> eight_bits;

/// Calls of NCCL that have moved bytes.
std::size_t moves() { return simt::calls("ncclAllGather") + simt::calls("ncclAlltoAll") + simt::calls("ncclSend"); }

}  // namespace

TEST_CASE("nccl_workspace: every message of a collective lies in a window", "[simt][nccl][workspace]") {
    for (const simt::ranks_and_nodes& ranks : simt::topologies()) {
        CAPTURE(ranks.name);
        const simt::leaves_nothing after;
        const std::size_t moved = moves(), in_windows = simt::calls("a call in windows");
        expectations expect;
        simt::on_ranks(ranks, "scratch of NCCL", [&](zeropp::thread_transport& world) {
            zeropp::communicator comm(ranks.topology, simt::connect<nccl_transport>(world));
            const simt::owned_stream stream;
            const zeropp::partition part(n, comm.size());
            std::vector<float> values(part.size(comm.rank()));
            for (float x = static_cast<float>(comm.rank()); float& value : values) value = x += 0.01f;
            const simt::device_array<float> shard(values), expected(n), full(n);
            quantized_all_gather(stream.exec(), comm, eight_bits, shard.view(), expected.view());
            nccl_workspace scratch(quantized_all_gather_workspace_bytes(ranks.topology, eight_bits, n), comm);
            quantized_all_gather(stream.exec(), comm, eight_bits, shard.view(), full.view(), {}, scratch.view());
            stream.exec().wait();
            expect(full.read() == expected.read(), "the bits that other scratch gives");
        });
        CHECK(expect.unmet() == "");
        CHECK(2 * (simt::calls("a call in windows") - in_windows) == moves() - moved);
    }
}

TEST_CASE("nccl_workspace: a failure leaves neither memory nor window", "[simt][nccl][workspace][errors]") {
    const simt::leaves_nothing after;
    {
        // With a timeout, NCCL's calls do not block.
        zeropp::communicator comm(zeropp::flat(1), nccl_transport::create(nccl_transport::unique_id(), 1, 0,
                                                                          {.timeout = std::chrono::seconds(5)}));
        CHECK(nccl_workspace(0, comm).view().data() == nullptr);
        simt::fail_next("ncclMemAlloc", ncclUnhandledCudaError);
        CHECK(thrown<zeropp::nccl_error>([&] { nccl_workspace(64, comm); }).starts_with("ncclMemAlloc: "));
        const std::size_t registered = simt::calls("ncclCommWindowRegister");
        CHECK(nccl_workspace(64, comm).view().size() == 64);
        CHECK(simt::calls("ncclCommWindowRegister") == registered + 1);
        CHECK(simt::calls("ncclCommWindowDeregister") == registered + 1);
    }
    expectations expect;
    {
        // A rank waits for a window that the other one does not register.
        const simt::hanging_calls hanging;
        simt::on_ranks({"1 x 2", {1, 2}}, "a window of one rank", [&](zeropp::thread_transport& world) {
            zeropp::communicator comm(zeropp::flat(2),
                                      nccl_transport::create(simt::shared_id<nccl_transport>(world), 2, world.rank(),
                                                             {.timeout = std::chrono::milliseconds(200)}));
            begin_collective(comm.world(), {"earlier", 0, {}, {}, {}}, {});
            if (comm.rank() == 0) {
                expect.equal(thrown<zeropp::timeout_error>([&] { nccl_workspace(4096, comm); }),
                             "nccl_transport: timeout of 200 ms in call 2, registration of 4096 bytes in "
                             "nccl_workspace: waited for ncclCommWindowRegister; NCCL does not say which ranks were "
                             "not heard from");
            }
            simt::meet(world);
        });
    }
    // A window of one rank fails. The others wait for that rank until their timeout.
    simt::on_ranks({"2 x 2", {2, 2}}, "a window that fails", [&](zeropp::thread_transport& world) {
        zeropp::communicator comm(zeropp::two_level(2, 2),
                                  nccl_transport::create(simt::shared_id<nccl_transport>(world), 4, world.rank(),
                                                         {.timeout = std::chrono::milliseconds(500)}));
        if (comm.rank() == 0) simt::fail_next("ncclCommWindowRegister", ncclSystemError);
        simt::meet(world);
        expect(!thrown<zeropp::error>([&] { nccl_workspace(4096, comm); }).starts_with('<'), "an error on every rank");
        simt::meet(world);
    });
    CHECK(expect.unmet() == "");
}
