#include <zeropp/execution/cuda_stream.hpp>

#include "simt/device.hpp"
#include "support/catch.hpp"
#include "support/expectations.hpp"

#include <zeropp/codec/cuda/launch.cuh>
#include <zeropp/core/workspace.hpp>

#include <concepts>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace simt = zeropp_test::simt;
using zeropp::cuda_stream;

namespace {

/// The device's one thread that does f() in the stream's turn.
void enqueue(const cuda_stream& exec, std::function<void()> f) {
    zeropp::detail::launch(exec, 1, 1, [f = std::move(f)] {
        if (threadIdx.x == 0) f();
    });
}

}  // namespace

TEST_CASE("cuda_stream is an execution on device memory, and copies are the same stream", "[simt][cuda_stream]") {
    STATIC_REQUIRE(zeropp::execution<cuda_stream>);
    STATIC_REQUIRE(std::copyable<cuda_stream>);
    STATIC_REQUIRE(std::same_as<cuda_stream::space, zeropp::device_space>);
    const simt::owned_stream stream(7);
    const cuda_stream same = stream.exec();
    CHECK(same.native() == stream.native());
    CHECK(same.multiprocessors() == 7);
    const simt::device_array<int> number(std::vector<int>{0});
    enqueue(stream.exec(), [p = number.data()] { *p = *p * 10 + 1; });
    enqueue(same, [p = number.data()] { *p = *p * 10 + 2; });
    same.wait();
    CHECK(number.read()[0] == 12);
    same.wait();
}

TEST_CASE("cuda_stream: enqueueing returns before the work runs", "[simt][cuda_stream]") {
    const simt::owned_stream stream;
    const simt::owned_stream other;
    const simt::device_array<int> number(std::vector<int>{0});
    const std::size_t synchronised = simt::calls("cudaStreamSynchronize") + simt::calls("cudaEventSynchronize");
    enqueue(stream.exec(), [p = number.data()] { *p = 1; });
    const cuda_stream::event done = stream.exec().record();
    other.exec().wait(done);
    CHECK(number.read()[0] == 0);
    CHECK(simt::calls("cudaStreamSynchronize") + simt::calls("cudaEventSynchronize") == synchronised);
    done.wait();
    CHECK(number.read()[0] == 1);
}

TEST_CASE("cuda_stream: an event that is not complete leaves no error behind", "[simt][cuda_stream]") {
    const simt::owned_stream stream;
    const simt::device_array<int> number(std::vector<int>{0});
    enqueue(stream.exec(), [p = number.data()] { *p = 1; });
    const cuda_stream::event done = stream.exec().record();
    CHECK_FALSE(done.is_complete());
    CHECK(cudaPeekAtLastError() == cudaSuccess);
    done.wait();
    CHECK(done.is_complete());
}

TEST_CASE("cuda_stream: events order streams that hand a value to and fro", "[simt][cuda_stream]") {
    const simt::owned_stream ping;
    const simt::owned_stream pong;
    const simt::device_array<long> number(std::vector<long>{0});
    long* const value = number.data();
    long expected = 0;
    for (int i = 0; i != 200; ++i) {
        enqueue(ping.exec(), [=] { *value += 1; });
        pong.exec().wait(ping.exec().record());
        enqueue(pong.exec(), [=] { *value *= -3; });
        ping.exec().wait(pong.exec().record());
        enqueue(ping.exec(), [=] { *value %= 1000003; });
        expected = (expected + 1) * -3 % 1000003;
    }
    ping.exec().wait();
    CHECK(number.read()[0] == expected);
}

TEST_CASE("cuda_stream: waiting where there is nothing to wait for returns", "[simt][cuda_stream]") {
    const simt::owned_stream stream;
    const simt::owned_stream other;
    stream.exec().wait();
    const cuda_stream::event before_any_work = stream.exec().record();
    before_any_work.wait();
    stream.exec().wait(before_any_work);
    other.exec().wait(before_any_work);
    other.exec().wait(cuda_stream::event());
    cuda_stream::event().wait();
    other.exec().wait();
}

TEST_CASE("cuda_stream: an event may be waited for often, late and from elsewhere", "[simt][cuda_stream]") {
    const simt::owned_stream stream;
    const simt::owned_stream other;
    const simt::device_array<int> number(std::vector<int>{0, 0});
    enqueue(stream.exec(), [p = number.data()] { *p = 7; });
    cuda_stream::event first = stream.exec().record();
    const cuda_stream::event done = std::move(first);
    other.exec().wait(first);  // moved from: complete
    other.exec().wait();
    CHECK(number.read()[0] == 0);
    other.exec().wait(done);
    stream.exec().wait(done);
    other.exec().wait(done);
    enqueue(other.exec(), [p = number.data()] { p[1] = p[0]; });
    other.exec().wait();
    CHECK(number.read()[1] == 7);
    done.wait();
    stream.exec().wait();
    other.exec().wait(done);
    other.exec().wait();
}

TEST_CASE("cuda_stream: an assigned event is the new one, and the old one is given back", "[simt][cuda_stream]") {
    const simt::owned_stream stream;
    const simt::owned_stream other;
    const simt::device_array<int> number(std::vector<int>{0});
    cuda_stream::event latest = stream.exec().record();
    for (int i = 1; i != 4; ++i) {
        enqueue(stream.exec(), [p = number.data(), i] { *p = i; });
        latest = stream.exec().record();
    }
    enqueue(stream.exec(), [p = number.data()] { *p = 9; });
    other.exec().wait(latest);
    other.exec().wait();
    CHECK(number.read()[0] == 3);
    stream.exec().wait();
}

TEST_CASE("cuda_stream: events come from a pool that grows to what is in use", "[simt][cuda_stream]") {
    const std::size_t live_before = simt::live().events;
    {
        const simt::owned_stream stream;
        const simt::owned_stream other;
        const std::size_t created = simt::calls("cudaEventCreateWithFlags");
        for (int i = 0; i != 100; ++i) other.exec().wait(stream.exec().record());
        CHECK(simt::calls("cudaEventCreateWithFlags") == created + 1);
        {
            std::vector<cuda_stream::event> held;
            for (int i = 0; i != 5; ++i) held.push_back(stream.exec().record());
        }
        for (int i = 0; i != 100; ++i) {
            const cuda_stream::event a = stream.exec().record();
            const cuda_stream::event b = stream.exec().record();
        }
        CHECK(simt::calls("cudaEventCreateWithFlags") == created + 5);
        CHECK(simt::live().events == live_before + 5);
    }
    CHECK(simt::live().events == live_before);
}

TEST_CASE("cuda_stream: an event outlives its stream's executions", "[simt][cuda_stream]") {
    const std::size_t live_before = simt::live().events;
    cuda_stream::event kept;
    const simt::device_array<int> number(std::vector<int>{0});
    {
        const simt::owned_stream stream;
        enqueue(stream.exec(), [p = number.data()] { *p = 5; });
        kept = stream.exec().record();
    }
    kept.wait();
    CHECK(number.read()[0] == 5);
    kept = cuda_stream::event();
    CHECK(simt::live().events == live_before);
}

TEST_CASE("cuda_stream: a wait holds on to its point when the event is used again", "[simt][cuda_stream]") {
    const simt::owned_stream stream;
    const simt::owned_stream other;
    const simt::device_array<int> number(std::vector<int>{0, 0});
    enqueue(stream.exec(), [p = number.data()] { *p = 1; });
    other.exec().wait(stream.exec().record());  // goes back to the pool here
    enqueue(stream.exec(), [p = number.data()] { *p = 2; });
    const cuda_stream::event reused = stream.exec().record();
    enqueue(other.exec(), [p = number.data()] { p[1] = *p; });
    other.exec().wait();
    CHECK(number.read()[1] == 1);
    reused.wait();
}

TEST_CASE("cuda_stream: copies move bytes in the stream's turn", "[simt][cuda_stream]") {
    const simt::owned_stream stream;
    const simt::device_array<int> from(std::vector<int>{0, 0, 0});
    const simt::device_array<int> to(std::vector<int>{-1, -1, -1});
    enqueue(stream.exec(), [p = from.data()] { p[0] = p[1] = p[2] = 4; });
    stream.exec().copy(to.data(), from.data(), 2 * sizeof(int));
    enqueue(stream.exec(), [p = from.data()] { p[0] = p[1] = p[2] = 5; });
    stream.exec().wait();
    CHECK(to.read() == std::vector<int>{4, 4, -1});
    stream.exec().copy(to.data(), from.data(), 0);
    stream.exec().wait();
    CHECK(to.read() == std::vector<int>{4, 4, -1});
}

TEST_CASE("cuda_stream: every call that fails is raised with CUDA's own text", "[simt][cuda_stream]") {
    const simt::owned_stream stream;
    const cuda_stream& exec = stream.exec();
    const simt::device_array<int> memory(4);
    const auto fails_in = [](const std::string& entry_point, auto call) {
        simt::fail_next(entry_point, cudaErrorIllegalAddress);
        const std::string text = zeropp_test::thrown<zeropp::cuda_error>(call);
        simt::recover();
        return text == entry_point + ": cudaErrorIllegalAddress, an illegal memory access was encountered" &&
               zeropp_test::thrown<zeropp::cuda_error>(call) == "<nothing thrown>";
    };
    CHECK(fails_in("cudaGetDevice", [&] { cuda_stream(exec.native()); }));
#if CUDART_VERSION >= 12080
    CHECK(fails_in("cudaStreamGetDevice", [&] { cuda_stream(exec.native()); }));
#endif
    CHECK(fails_in("cudaDeviceGetAttribute", [&] { cuda_stream(exec.native()); }));
    CHECK(fails_in("cudaMemcpyAsync", [&] { exec.copy(memory.data(), memory.data() + 2, 8); }));
    CHECK(fails_in("cudaEventCreateWithFlags", [&] { cuda_stream(exec.native()).record(); }));
    CHECK(fails_in("cudaEventRecord", [&] { exec.record(); }));
    CHECK(fails_in("cudaStreamWaitEvent", [&] { exec.wait(exec.record()); }));
    CHECK(fails_in("cudaStreamSynchronize", [&] { exec.wait(); }));
    CHECK(fails_in("cudaEventSynchronize", [&] { exec.record().wait(); }));
    CHECK(fails_in("cudaLaunchKernel", [&] { zeropp::detail::launch(exec, 1, 1, [] {}); }));
    CHECK(fails_in("cudaMalloc", [&] { zeropp::workspace<zeropp::device_space>(16); }));
    exec.wait();

    // What was thrown is not found again by others who ask CUDA.
    CHECK(cudaGetLastError() == cudaSuccess);
    simt::fail_next("cudaMalloc", cudaErrorMemoryAllocation);
    try {
        zeropp::workspace<zeropp::device_space>(16);
        FAIL("cudaMalloc was not checked");
    } catch (const zeropp::cuda_error& e) {
        CHECK(e.code() == cudaErrorMemoryAllocation);
    }
}

TEST_CASE("cuda_stream: nothing is lost when a call fails", "[simt][cuda_stream]") {
    const simt::live_objects before = simt::live();
    {
        const simt::owned_stream stream;
        simt::fail_next("cudaEventRecord", cudaErrorIllegalAddress);
        CHECK_THROWS_AS(stream.exec().record(), zeropp::cuda_error);
        stream.exec().record();
        CHECK(simt::live().events == before.events + 1);
    }
    simt::recover();
    CHECK(simt::live() == before);
}

TEST_CASE("workspace of device memory: aligned, of the size asked for, and given back", "[simt][workspace]") {
    const simt::live_objects before = simt::live();
    {
        zeropp::workspace<zeropp::device_space> some(1000);
        zeropp::workspace<zeropp::device_space> none(0);
        CHECK(some.view().size() == 1000);
        CHECK(zeropp::workspace_problem(some.view(), 1000) == "");
        CHECK(none.view().size() == 0);
        CHECK(simt::live().device_blocks == before.device_blocks + 1);
        zeropp::workspace<zeropp::device_space> moved = std::move(some);
        CHECK(moved.view().data() != nullptr);
    }
    CHECK(simt::live() == before);
}

#if CUDART_VERSION >= 12080
TEST_CASE("cuda_stream: of the current device, or refused if the driver can tell", "[simt][cuda_stream]") {
    const simt::owned_stream of_first;
    simt::set_devices(2);
    REQUIRE(cudaSetDevice(1) == cudaSuccess);
    CHECK_THROWS_WITH(cuda_stream(of_first.native()),
                      "cuda_stream: expected a stream of the current device, 1, given one of device 0");
    CHECK_NOTHROW(cuda_stream(nullptr));
    simt::fail_next("cudaStreamGetDevice", cudaErrorCallRequiresNewerDriver);
    CHECK_NOTHROW(cuda_stream(of_first.native()));
    CHECK(cudaGetLastError() == cudaSuccess);
    REQUIRE(cudaSetDevice(0) == cudaSuccess);
    simt::set_devices(1);
    CHECK_NOTHROW(cuda_stream(of_first.native()));
}
#endif
