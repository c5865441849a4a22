/// The codec inside CUDA graphs, and what it throws.

#include "gpu/capture.hpp"
#include "kernels/codec_against_host.hpp"

#include "support/expectations.hpp"
#include <zeropp/cuda.cuh>

#include <string>

namespace gpu = zeropp_test::gpu;
using namespace zeropp;
using zeropp_test::contains;
using zeropp_test::thrown;

TEST_CASE("graph: writes and reads are captured and replayed", "[gpu][graph]") {
    const block_integer<8, 256> q;
    const block_integer<4, 128> to;
    const std::size_t n = 20'003;
    const slices all = slices::single(n, 0, n);
    const auto values = gpu::tensor<bfloat16>(n, 0);
    std::vector<std::byte> message(wire_bytes(q, n));
    std::vector<std::byte> sum(wire_bytes(to, n));
    std::vector<bfloat16> back(n);
    std::vector<bfloat16> total(n);
    gpu::on_host::write(host{}, q, values.data(), all, message.data());
    gpu::on_host::read(host{}, message_sum{q, message.data()}, all, back.data());
    gpu::on_host::write(host{}, to, message_sum{q, message.data(), 1}, all, sum.data());
    gpu::on_host::read(host{}, message_sum{to, sum.data(), 1, 3.0f}, all, total.data());

    const gpu::owned_stream stream;
    const gpu::device_array<bfloat16> in(values);
    gpu::device_array<std::byte> device_message(message.size());
    gpu::device_array<bfloat16> device_back(n);
    gpu::device_array<std::byte> device_sum(sum.size());
    gpu::device_array<bfloat16> device_total(n);
    const gpu::captured graph(stream.native(), cudaStreamCaptureModeGlobal, [&] {
        gpu::on_device::write(stream.exec(), q, in.data(), all, device_message.data());
        gpu::on_device::read(stream.exec(), message_sum{q, device_message.data()}, all, device_back.data());
        gpu::on_device::write(stream.exec(), to, message_sum{q, device_message.data(), 1}, all, device_sum.data());
        gpu::on_device::read(stream.exec(), message_sum{to, device_sum.data(), 1, 3.0f}, all, device_total.data());
    });
    for (int run = 0; run != 2; ++run) {
        device_message.fill();
        device_back.fill();
        device_sum.fill();
        device_total.fill();
        graph.run(stream.native());
        stream.exec().wait();
        CHECK(zeropp_test::difference(device_message.read(), message) == "");
        CHECK(zeropp_test::difference(device_back.read(), back) == "");
        CHECK(zeropp_test::difference(device_sum.read(), sum) == "");
        CHECK(zeropp_test::difference(device_total.read(), total) == "");
    }
}

TEST_CASE("graph: executions fork and join inside a capture", "[gpu][graph]") {
    const block_integer<8, 256> q;
    const std::size_t n = 20'003;
    const slices all = slices::single(n, 0, n);
    const auto values = gpu::tensor<float>(n, 0);
    std::vector<std::byte> message(wire_bytes(q, n));
    gpu::on_host::write(host{}, q, values.data(), all, message.data());

    const gpu::owned_stream stream;
    const gpu::owned_stream other;
    const gpu::device_array<float> in(values);
    const gpu::device_array<std::byte> one(message.size());
    const gpu::device_array<std::byte> two(message.size());
    const gpu::captured graph(stream.native(), cudaStreamCaptureModeGlobal, [&] {
        other.exec().wait(stream.exec().record());
        gpu::on_device::write(other.exec(), q, in.data(), all, one.data());
        stream.exec().wait(other.exec().record());
        stream.exec().copy(two.data(), one.data(), message.size());
    });
    graph.run(stream.native());
    stream.exec().wait();
    CHECK(zeropp_test::difference(two.read(), message) == "");
}

TEST_CASE("errors: CUDA's code and text are in the exception", "[gpu][errors]") {
    const gpu::owned_stream stream;
    const gpu::device_array<float> in(std::vector<float>(1000, 1.0f));
    const block_integer<8, 256> q;
    const slices all = slices::single(1000, 0, 1000);
    const gpu::device_array<std::byte> out(wire_bytes(q, 1000));

    const std::string memory = thrown<cuda_error>([] { workspace<device_space>(std::size_t{1} << 44); });
    INFO(memory);
    CHECK(contains(memory, "cudaMalloc: cudaErrorMemoryAllocation"));
    cudaGetLastError();

    // A stream that is being captured cannot be waited for; the attempt spoils the capture, and so every launch in it.
    gpu::require_cuda(cudaStreamBeginCapture(stream.native(), cudaStreamCaptureModeThreadLocal),
                      "cudaStreamBeginCapture");
    const std::string wait = thrown<cuda_error>([&] { stream.exec().wait(); });
    const std::string launch =
        thrown<cuda_error>([&] { gpu::on_device::write(stream.exec(), q, in.data(), all, out.data()); });
    cudaGraph_t graph = nullptr;
    CHECK(cudaStreamEndCapture(stream.native(), &graph) != cudaSuccess);
    cudaGetLastError();
    INFO(wait << "; " << launch);
    CHECK(contains(wait, "cudaStreamSynchronize: cudaErrorStreamCapture"));
    CHECK(contains(launch, "cudaLaunchKernel: cudaErrorStreamCapture"));

    // None of it outlives its call.
    gpu::on_device::write(stream.exec(), q, in.data(), all, out.data());
    stream.exec().wait();
    std::vector<std::byte> expected(wire_bytes(q, 1000));
    const std::vector<float> ones(1000, 1.0f);
    gpu::on_host::write(host{}, q, ones.data(), all, expected.data());
    CHECK(zeropp_test::difference(out.read(), expected) == "");
}
