#include "simt/cuda_emulation.hpp"

#include "simt/device.hpp"
#include "support/catch.hpp"
#include "support/samples.hpp"
#include "support/watchdog.hpp"

#include <zeropp/codec/cuda.cuh>
#include <zeropp/codec/host.hpp>
#include <zeropp/collective/adaptive_precision.hpp>
#include <zeropp/execution/host.hpp>
#include <zeropp/quantizer/block_integer.hpp>
#include <zeropp/topology/flat.hpp>
#include <zeropp/transport/communicator.hpp>
#include <zeropp/transport/staged.hpp>
#include <zeropp/transport/threads.hpp>

#include <chrono>
#include <cmath>
#include <cstddef>
#include <vector>

namespace simt = zeropp_test::simt;

namespace {

using policy = zeropp::adaptive_precision<zeropp::block_integer<4, 128>, zeropp::block_integer<6, 128>>;

}  // namespace

TEST_CASE("the device chooses as the host does", "[simt][adaptive_precision]") {
    const zeropp_test::watchdog guard(std::chrono::seconds(60), "a choice on the device");
    const std::vector<std::vector<float>> data{zeropp_test::normal_floats(5003, 1), zeropp_test::normal_floats(700, 2)};
    for (const double target : {10.0, 25.0, 60.0}) {
        const policy p(target);
        std::vector<policy::choice> given(2), expected(2);
        zeropp::run_on_threads(2, [&](zeropp::thread_transport& world) {
            const auto r = static_cast<std::size_t>(world.rank());
            const std::vector<float>& mine = data[r];
            zeropp::communicator of_host(zeropp::flat(2), world);
            zeropp::workspace<zeropp::host_space> scratch(policy::workspace_bytes(mine.size(), 2));
            expected[r] = p.choose(zeropp::host(), of_host, mine, scratch.view());

            const simt::owned_stream stream;
            const simt::device_array<float> tensor(mine);
            const simt::device_array<std::byte> device_scratch(policy::workspace_bytes(mine.size(), 2));
            given[r] = p.choose(stream.exec(), of_host, tensor.view(), device_scratch.view());
        });
        for (const std::size_t r : {std::size_t{0}, std::size_t{1}}) {
            CHECK(given[r].quantizer.index() == expected[r].quantizer.index());
            CHECK(given[r].holds == expected[r].holds);
            CHECK(std::fabs(given[r].sqnr_db - expected[r].sqnr_db) < 1e-9);
            CHECK(given[r].sqnr_db == given[0].sqnr_db);
        }
    }
    CHECK(simt::device_fault() == "");
}
