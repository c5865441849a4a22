#include <zeropp/execution/cuda_workspace.hpp>

#include "simt/cuda_emulation.hpp"

#include "simt/device.hpp"
#include "support/catch.hpp"
#include "support/samples.hpp"

#include <cstddef>
#include <vector>

namespace simt = zeropp_test::simt;
using zeropp::cuda_stream;
using zeropp::device_space;
using zeropp::workspace;

TEST_CASE("workspace of device memory: assigned bytes are there when the call returns, for every stream",
          "[simt][workspace]") {
    const std::vector<float> expected = zeropp_test::normal_floats(100, 1);
    workspace<device_space> memory(expected.size() * sizeof(float));
    memory.assign(expected.data(), expected.size() * sizeof(float));
    std::vector<float> given(expected.size());
    simt::read_device(given.data(), memory.view().data(), given.size() * sizeof(float));
    CHECK(given == expected);
    CHECK(simt::pending(nullptr) == 0);
}

TEST_CASE("workspace of device memory: bytes assigned in a stream's order are read at once, and never by a graph",
          "[simt][workspace]") {
    const simt::owned_stream stream;
    const std::vector<float> expected = zeropp_test::normal_floats(100, 1);
    const std::size_t bytes = expected.size() * sizeof(float);
    workspace<device_space> memory(bytes);
    using simt::host_pages;
    for (const auto reads : {host_pages::staged, host_pages::by_host_tables, host_pages::by_own_tables}) {
        simt::set_device(4, reads);
        {
            std::vector<float> gone = expected;
            memory.assign(gone.data(), bytes, cuda_stream(stream.native()));
            gone.assign(gone.size(), -1.0f);
        }
        CHECK(simt::pending(stream.native()) == (reads == host_pages::staged ? 1 : 2));  // a copy, and its end
        stream.exec().wait();
        std::vector<float> given(expected.size());
        simt::read_device(given.data(), memory.view().data(), bytes);
        CHECK(given == expected);
    }
    simt::set_device(4);

    REQUIRE(cudaStreamBeginCapture(stream.native(), cudaStreamCaptureModeGlobal) == cudaSuccess);
    CHECK_THROWS_WITH(memory.assign(expected.data(), bytes, stream.exec()),
                      "workspace: expected a copy of host memory outside of a capture, given a captured stream");
    cudaGraph_t graph = nullptr;
    REQUIRE(cudaStreamEndCapture(stream.native(), &graph) == cudaSuccess);
    cudaGraphDestroy(graph);
}
