#include "simt/device.hpp"
#include "support/catch.hpp"

#include <zeropp/codec/cuda/launch.cuh>

#include <thread>
#include <vector>

namespace simt = zeropp_test::simt;

namespace {

/// A kernel that adds to one number on the device.
void enqueue_add(const simt::owned_stream& stream, int* number, int what) {
    zeropp::detail::launch(stream.exec(), 1, 1, [=] {
        if (threadIdx.x == 0) *number += what;
    });
}

}  // namespace

TEST_CASE("doubles: work runs as late as it may", "[simt][doubles]") {
    const simt::owned_stream stream;
    const simt::device_array<int> number(std::vector<int>{1});
    enqueue_add(stream, number.data(), 2);
    enqueue_add(stream, number.data(), 3);
    CHECK(simt::pending(stream.native()) == 2);
    CHECK(number.read()[0] == 1);
    CHECK(cudaStreamQuery(stream.native()) == cudaErrorNotReady);
    stream.exec().wait();
    CHECK(number.read()[0] == 6);
    CHECK(cudaStreamQuery(stream.native()) == cudaSuccess);
}

TEST_CASE("doubles: waiting for an event runs the other stream up to it and no further", "[simt][doubles]") {
    const simt::owned_stream first;
    const simt::owned_stream second;
    const simt::device_array<int> a(std::vector<int>{0});
    cudaEvent_t event = nullptr;
    REQUIRE(cudaEventCreateWithFlags(&event, cudaEventDisableTiming) == cudaSuccess);

    CHECK(cudaEventSynchronize(event) == cudaSuccess);  // never recorded
    CHECK(cudaStreamWaitEvent(second.native(), event, 0) == cudaSuccess);

    enqueue_add(first, a.data(), 1);
    REQUIRE(cudaEventRecord(event, first.native()) == cudaSuccess);
    REQUIRE(cudaStreamWaitEvent(second.native(), event, 0) == cudaSuccess);
    enqueue_add(first, a.data(), 10);
    // Recording it again, or destroying it, changes nothing for who waits already.
    REQUIRE(cudaEventRecord(event, first.native()) == cudaSuccess);
    CHECK(cudaEventQuery(event) == cudaErrorNotReady);
    CHECK(a.read()[0] == 0);
    second.exec().wait();
    CHECK(a.read()[0] == 1);
    CHECK(simt::pending(first.native()) == 1);
    CHECK(cudaEventSynchronize(event) == cudaSuccess);
    CHECK(a.read()[0] == 11);
    CHECK(cudaEventDestroy(event) == cudaSuccess);
    CHECK(cudaEventDestroy(event) == cudaErrorInvalidResourceHandle);
}

TEST_CASE("doubles: a missing wait shows", "[simt][doubles]") {
    const simt::owned_stream first;
    const simt::owned_stream second;
    const simt::device_array<int> from(std::vector<int>{0});
    const simt::device_array<int> to(std::vector<int>{-1});
    enqueue_add(first, from.data(), 5);
    second.exec().copy(to.data(), from.data(), sizeof(int));
    second.exec().wait();
    CHECK(to.read()[0] == 0);
    second.exec().wait(first.exec().record());
    second.exec().copy(to.data(), from.data(), sizeof(int));
    second.exec().wait();
    CHECK(to.read()[0] == 5);
}

TEST_CASE("doubles: copies know which memory they are given", "[simt][doubles]") {
    const simt::owned_stream stream;
    const cudaStream_t s = stream.native();
    const simt::device_array<int> a(std::vector<int>{1, 2, 3, 4});
    const simt::device_array<int> b(4);
    std::vector<int> host(4, 9);
    CHECK(cudaMemcpyAsync(b.data(), host.data(), 16, cudaMemcpyDeviceToDevice, s) == cudaErrorInvalidValue);
    CHECK(cudaMemcpyAsync(host.data(), a.data(), 16, cudaMemcpyDeviceToDevice, s) == cudaErrorInvalidValue);
    CHECK(cudaMemcpyAsync(host.data(), a.data(), 16, cudaMemcpyHostToDevice, s) == cudaErrorInvalidValue);
    CHECK(cudaMemcpyAsync(b.data(), a.data(), 1 << 20, cudaMemcpyDeviceToDevice, s) == cudaErrorInvalidValue);
    CHECK(cudaMemcpyAsync(a.data() + 1, a.data(), 12, cudaMemcpyDeviceToDevice, s) == cudaErrorInvalidValue);
    CHECK(simt::pending(s) == 0);

    // Pageable memory: read and written before the call returns. Pinned memory: in the stream's turn.
    REQUIRE(cudaMemcpyAsync(b.data(), host.data(), 16, cudaMemcpyHostToDevice, s) == cudaSuccess);
    host.assign(4, 7);
    CHECK(simt::pending(s) == 1);
    REQUIRE(cudaMemcpyAsync(host.data(), b.data(), 16, cudaMemcpyDeviceToHost, s) == cudaSuccess);
    CHECK(host == std::vector<int>(4, 9));
    void* pinned = nullptr;
    REQUIRE(cudaMallocHost(&pinned, 16) == cudaSuccess);
    auto* const numbers = static_cast<int*>(pinned);
    REQUIRE(cudaMemcpyAsync(pinned, a.data(), 16, cudaMemcpyDeviceToHost, s) == cudaSuccess);
    CHECK(numbers[3] != 4);
    REQUIRE(cudaMemsetAsync(b.data(), 0, 16, s) == cudaSuccess);
    stream.exec().wait();
    CHECK(numbers[3] == 4);
    CHECK(b.read() == std::vector<int>(4, 0));
    CHECK(cudaFreeHost(pinned) == cudaSuccess);
    CHECK(cudaFree(host.data()) == cudaErrorInvalidValue);
}

TEST_CASE("doubles: memory starts out as NaN, and all is counted", "[simt][doubles]") {
    const simt::live_objects before = simt::live();
    void* p = nullptr;
    REQUIRE(cudaMalloc(&p, 8) == cudaSuccess);
    float x = 0;
    simt::read_device(&x, p, sizeof x);
    CHECK(x != x);
    CHECK(simt::live().device_blocks == before.device_blocks + 1);
    CHECK(cudaFree(p) == cudaSuccess);
    CHECK(cudaFree(p) == cudaErrorInvalidValue);
    CHECK(cudaFree(nullptr) == cudaSuccess);
    CHECK(simt::live() == before);
}

TEST_CASE("doubles: entry points fail when told to, once", "[simt][doubles]") {
    void* p = nullptr;
    const std::size_t calls = simt::calls("cudaMalloc");
    simt::fail_next("cudaMalloc", cudaErrorMemoryAllocation);
    CHECK(cudaMalloc(&p, 8) == cudaErrorMemoryAllocation);
    CHECK(cudaPeekAtLastError() == cudaErrorMemoryAllocation);
    CHECK(cudaGetLastError() == cudaErrorMemoryAllocation);
    CHECK(cudaGetLastError() == cudaSuccess);
    CHECK(cudaMalloc(&p, 8) == cudaSuccess);
    CHECK(cudaFree(p) == cudaSuccess);
    CHECK(simt::calls("cudaMalloc") == calls + 2);
}

TEST_CASE("doubles: what a kernel failed with is every later call's error, and is not taken back", "[simt][doubles]") {
    const simt::owned_stream stream;
    void* p = nullptr;
    zeropp::detail::emulate_launch(dim3(1), dim3(32), stream.native(), [] {
        if (threadIdx.x != 3) __syncwarp();
    });
    CHECK(cudaStreamSynchronize(stream.native()) == cudaErrorLaunchFailure);
    for (int i = 0; i != 2; ++i) CHECK(cudaGetLastError() == cudaErrorLaunchFailure);
    CHECK(cudaMalloc(&p, 8) == cudaErrorLaunchFailure);
    CHECK(cudaFree(p) == cudaErrorLaunchFailure);
    int device = -1;
    CHECK(cudaGetDevice(&device) == cudaErrorLaunchFailure);
    CHECK(cudaMemsetAsync(nullptr, 0, 0, stream.native()) == cudaErrorLaunchFailure);
    simt::recover();
    CHECK(cudaGetLastError() == cudaSuccess);
    CHECK(cudaStreamSynchronize(stream.native()) == cudaSuccess);
}

TEST_CASE("doubles: as many devices as a test wants, of which each thread has chosen one", "[simt][doubles]") {
    int device = -1;
    CHECK(cudaSetDevice(1) == cudaErrorInvalidDevice);
    simt::set_devices(2);
    CHECK(cudaGetDeviceCount(&device) == cudaSuccess);
    CHECK(device == 2);
    CHECK(cudaSetDevice(1) == cudaSuccess);
    std::thread([&] { cudaGetDevice(&device); }).join();
    CHECK(device == 0);
    CHECK(cudaGetDevice(&device) == cudaSuccess);
    CHECK(device == 1);
    CHECK(cudaSetDevice(2) == cudaErrorInvalidDevice);
    CHECK(cudaSetDevice(0) == cudaSuccess);
    simt::set_devices(1);
}
