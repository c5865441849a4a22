#include "kernels/codec_against_host.hpp"
#include "simt/collectives.hpp"
#include "simt/device.hpp"
#include "support/catch.hpp"

#include <zeropp/collective/hierarchical_quantized_reduce_scatter.hpp>
#include <zeropp/layout/partition.hpp>
#include <zeropp/transport/communicator.hpp>

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace simt = zeropp_test::simt;

namespace {

simt::any_transport threads(zeropp::thread_transport& world) { return simt::any_transport(world); }

}  // namespace

TEST_CASE("collectives on the device: gathers between threads", "[simt][collectives]") {
    simt::check_all_gathers(threads);
}

TEST_CASE("collectives on the device: reduce-scatter between threads", "[simt][collectives]") {
    simt::check_reduce_scatters(threads);
}

TEST_CASE("collectives on the device: all-reduce of lists between threads", "[simt][collectives]") {
    simt::check_all_reduces(threads);
}

TEST_CASE("collectives on the device: updates of lists between threads", "[simt][collectives]") {
    simt::check_updates(threads);
}

TEST_CASE("collectives on the device: two and three levels between threads", "[simt][collectives]") {
    simt::check_levels(threads);
}

TEST_CASE("collectives on the device: a rank whose call fails raises it, and nobody hangs", "[simt][collectives]") {
    using zeropp::block_integer;
    constexpr std::size_t n = 4000;
    constexpr block_integer<8, 256> intra_node;
    constexpr block_integer<4, 128> inter_node;
    const zeropp::two_level topology(2, 2);
    const zeropp::partition part(n, 4);
    const std::size_t bytes = zeropp::hierarchical_quantized_reduce_scatter_workspace_bytes(
        topology, zeropp::hops{intra_node, inter_node}, n);
    const simt::live_objects before = simt::live();
    for (const std::string entry_point :
         {"cudaLaunchKernel", "cudaMemcpyAsync", "cudaStreamWaitEvent", "cudaEventRecord"}) {
        for (int repetition = 0; repetition != 4; ++repetition) {
            // Memory that lives until all streams have ended: what ranks have enqueued still runs.
            std::vector<std::unique_ptr<simt::device_array<float>>> tensors;
            std::vector<std::unique_ptr<simt::device_array<std::byte>>> scratches;
            std::vector<std::unique_ptr<simt::owned_stream>> streams;
            for (int r = 0; r != 4; ++r) {
                tensors.push_back(std::make_unique<simt::device_array<float>>(simt::tensor<float>(n, 0)));
                scratches.push_back(std::make_unique<simt::device_array<std::byte>>(bytes));
                streams.push_back(std::make_unique<simt::owned_stream>());
            }
            std::string text;
            simt::fail_next(entry_point, cudaErrorIllegalAddress);
            const zeropp_test::watchdog guard(std::chrono::seconds(60), "a rank fails in " + entry_point);
            try {
                zeropp::run_on_threads(4, [&](zeropp::thread_transport& world) {
                    zeropp::communicator comm(topology, world);
                    const auto r = static_cast<std::size_t>(comm.rank());
                    const auto full = tensors[r]->view();
                    const auto own = full.subview(part.offset(comm.rank()), part.size(comm.rank()));
                    zeropp::hierarchical_quantized_reduce_scatter(streams[r]->exec(), comm,
                                                                  zeropp::hops{intra_node, inter_node}, full, own, {},
                                                                  scratches[r]->view());
                });
            } catch (const zeropp::cuda_error& e) {
                text = e.what();
            }
            CHECK(text == entry_point + ": cudaErrorIllegalAddress, an illegal memory access was encountered");
        }
    }
    simt::recover();
    CHECK(simt::live() == before);
}
