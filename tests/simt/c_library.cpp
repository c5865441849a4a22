/// \file
/// The C library for CUDA tensors: what it keeps between calls, the calls of CUDA that it makes, and captures.

#include "simt/cuda_emulation.hpp"

#define ZEROPP_C_CUDA
#include "../../examples/c/src/communicator.cpp"
#include "../../examples/c/src/outer_step.cpp"

#include "gpu/capture.hpp"
#include "kernels/codec_against_host.hpp"
#include "simt/device.hpp"
#include "support/catch.hpp"

#include <cstddef>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

namespace simt = zeropp_test::simt;
using zeropp::cuda_stream;

namespace {

// Shards of unequal size, so that messages do not lie in place.
constexpr std::size_t n = 3001;
constexpr zeropp::cast_to<float> floats;

int gather_echo(void*, int, void* stream, const void* send, void* receive, std::size_t bytes) {
    int failed = 0;
    for (std::size_t r = 0; r != 2; ++r) {
        std::byte* const to = static_cast<std::byte*>(receive) + r * bytes;
        if (to == send) continue;
        const auto code = cudaMemcpyAsync(to, send, bytes, cudaMemcpyDeviceToDevice, static_cast<cudaStream_t>(stream));
        failed += code != cudaSuccess ? 1 : 0;
    }
    return failed;
}
int no_exchange(void*, int, void*, const void*, void*, std::size_t) { return 1; }
int no_group(void*, int, const int*, int) { return -1; }

/// A communicator of rank 0 of two, which hears itself in place of the other one.
struct echoing_communicator {
    zeropp_communicator* made = nullptr;

    echoing_communicator() {
        const int nodes[] = {0, 0};
        const zeropp_callbacks echo{nullptr, gather_echo, no_exchange, no_group};
        REQUIRE(zeropp_communicator_create(nodes, 2, 0, echo, &made) == zeropp_success);
    }
    echoing_communicator(const echoing_communicator&) = delete;
    echoing_communicator& operator=(const echoing_communicator&) = delete;
    ~echoing_communicator() { zeropp_communicator_destroy(made); }

    /// As zeropp_all_gather, which has all formats.
    zeropp_status gather(const simt::device_array<float>& shard, const simt::device_array<float>& full,
                         const simt::owned_stream& stream) const {
        return zeropp_c::status_of_collective(*made, "gather", stream.native(), [&](const cuda_stream& exec) {
            const zeropp_tensor whole{full.data(), full.size(), 1}, part{shard.data(), shard.size(), 1};
            const auto& fulls = made->list<float>(&whole, 1);
            const auto& shards = made->list<float>(&part, 1, true);
            const std::size_t bytes =
                zeropp::quantized_all_gather_workspace_bytes(made->comm.topology(), floats, fulls);
            zeropp::quantized_all_gather(exec, made->comm, floats, shards, fulls, {}, made->scratch_of(bytes));
        });
    }
};

/// A shard, and the tensor that a gather makes of it.
struct gathered {
    std::vector<float> expected;
    simt::device_array<float> shard;
    simt::device_array<float> full;

    explicit gathered(std::uint64_t seed)
        : expected(zeropp_test::normal_floats(n / 2 + 1, seed)), shard(expected), full(n) {
        expected.insert(expected.end(), expected.begin(), expected.end() - 1);
    }
    bool is_there() const { return full.read() == expected; }
};

}  // namespace

TEST_CASE("C library: a call on an earlier call's tensors makes no list, event or execution", "[simt][c]") {
    const simt::live_objects before = simt::live();
    {
        const simt::owned_stream stream, other;
        const gathered a(1), b(2);
        const echoing_communicator ranks;
        for (const auto* tensors : {&a, &b}) REQUIRE(ranks.gather(tensors->shard, tensors->full, stream) == 0);
        stream.exec().wait();
        CHECK((a.is_there() && b.is_there()));
        const auto calls_of = [&](const gathered& tensors, const simt::owned_stream& on) {
            const simt::call_count count;
            REQUIRE(ranks.gather(tensors.shard, tensors.full, on) == zeropp_success);
            return count.text();
        };
        // The copy is the callback's. The first call asks for the events of two.
        const std::string others =
            ", cudaEventRecord 1, cudaLaunchKernel 2, cudaMemcpyAsync 1, cudaStreamIsCapturing 1";
        CHECK(calls_of(a, stream) == "cudaEventQuery 2" + others);
        CHECK(calls_of(b, stream) == "cudaEventQuery 1" + others);
        // On another stream it makes an execution, and waits for the stream before.
        REQUIRE(ranks.gather(a.shard, a.full, other) == zeropp_success);
        CHECK(calls_of(b, other) == "cudaEventCreateWithFlags 1, cudaEventQuery 1" + others);
        CHECK(calls_of(a, stream).ends_with(others + ", cudaStreamWaitEvent 1"));
        stream.exec().wait();
    }
    CHECK(simt::live() == before);
}

TEST_CASE("C library: lists outlive the kernels that read them, and scratch the calls that use it", "[simt][c]") {
    const simt::live_objects before = simt::live();
    {
        const simt::owned_stream stream, other;
        const gathered a(1), b(2);
        std::optional<echoing_communicator> ranks(std::in_place);
        // On two streams by turns, with the same scratch; the second is waited for alone.
        REQUIRE(ranks->gather(a.shard, a.full, stream) == 0);
        REQUIRE(ranks->gather(b.shard, b.full, other) == 0);
        CHECK(simt::pending(stream.native()) != 0);
        CHECK_FALSE(a.is_there());
        other.exec().wait();
        CHECK(simt::pending(stream.native()) == 0);
        CHECK((a.is_there() && b.is_there()));
        // No list is kept, nor this scratch, but for calls that use them.
        REQUIRE(ranks->gather(b.shard, a.full, stream) == 0);
        std::get<0>(ranks->made->lists) = {};
        ranks->made->scratch.reset();
        ranks.reset();  // which waits
        CHECK(a.full.read() == b.expected);
    }
    CHECK(simt::live() == before);
}

TEST_CASE("C library: calls are captured into graphs, with all that they keep", "[simt][c][graph]") {
    const simt::live_objects before = simt::live();
    {
        const simt::owned_stream stream;
        const gathered a(1);
        gathered b(2);
        std::optional<echoing_communicator> ranks(std::in_place);
        REQUIRE(ranks->gather(a.shard, a.full, stream) == 0);  // which the capture does not wait for
        ranks->made->scratch.reset();                          // so that the captured call makes scratch, too
        std::optional<zeropp_test::gpu::captured> graph;
        graph.emplace(stream.native(), cudaStreamCaptureModeGlobal, [&] {
            REQUIRE(ranks->gather(b.shard, b.full, stream) == 0);
            zeropp_compare(ranks->made, 1);
            CHECK(ranks->gather(b.shard, b.full, stream) == zeropp_failure);
            CHECK(zeropp_error() == std::string("zeropp_c: expected a stream that no CUDA graph captures, for compared "
                                                "calls and for zeropp_update_gather, given a captured one"));
        });
        std::get<0>(ranks->made->lists) = {};
        ranks->made->scratch.reset();
        REQUIRE(ranks->gather(a.shard, a.full, stream) == 0);
        for (int run = 0; run != 2; ++run) {
            b.full.write(std::vector<float>(n));
            graph->run(stream.native());
            stream.exec().wait();
            CHECK((a.is_there() && b.is_there()));
        }
        graph.reset();
        ranks.reset();
    }
    CHECK(simt::device_fault() == "");
    CHECK(simt::live() == before);
}

TEST_CASE("C library: compared calls wait for other ranks, and not for their stream", "[simt][c]") {
    const simt::owned_stream stream;
    const gathered a(1);
    const echoing_communicator ranks;
    stream.exec().copy(a.full.data(), a.shard.data(), sizeof(float));
    zeropp_compare(ranks.made, 1);
    REQUIRE(ranks.gather(a.shard, a.full, stream) == zeropp_success);
    CHECK(a.full.read()[0] != a.expected[0]);
    stream.exec().wait();
    CHECK(a.is_there());
}

namespace {

template <class T>
std::vector<float> widened(const std::vector<T>& values) {
    std::vector<float> floats_of;
    for (const T x : values) floats_of.push_back(zeropp::element_traits<T>::to_float(x));
    return floats_of;
}

/// Four exchanges of one island, by the C function on the device and by outer_optimizer on the host. Numbers are of
/// every kind, so some are NaN or Inf.
template <class T>
void check_outer_steps(zeropp_element element, float alpha) {
    INFO(zeropp::element_traits<T>::name << ", alpha " << alpha);
    std::vector<T> weights = simt::tensor<T>(n, 1);
    simt::device_array<T> on_device(weights);
    const zeropp::outer_options options{.learning_rate = 0.6f, .momentum = 0.8f, .alpha = alpha};
    using outer_type = zeropp::outer_optimizer<zeropp::host_space>;
    zeropp::workspace<zeropp::host_space> storage(outer_type::storage_bytes(weights));
    zeropp::communicator comm(zeropp::flat(1), zeropp::thread_transport::create(1).front());
    outer_type outer(comm.topology(), weights, storage.view());
    outer.start(zeropp::host{}, weights);
    std::vector<float> anchors(outer.anchor().data(), outer.anchor().data() + n);
    const simt::device_array<float> anchors_there(anchors), momenta_there(std::vector<float>(n, 0.0f));
    const simt::owned_stream stream;
    for (int exchange = 0; exchange != 4; ++exchange) {
        const auto moved = simt::tensor<float>(n, 10 + static_cast<std::size_t>(exchange));
        std::vector<float> means(n);
        for (std::size_t i = 0; i != n; ++i) {
            const float x = zeropp::element_traits<T>::to_float(weights[i]) + moved[i];
            weights[i] = zeropp::element_traits<T>::from_float(x);
            means[i] = outer.anchor().data()[i] - zeropp::element_traits<T>::to_float(weights[i]);
        }
        on_device.write(weights);
        const simt::device_array<float> means_there(means);
        zeropp::outer_step(zeropp::host{}, comm, zeropp::hops{floats, floats, floats}, weights, outer, options);
        REQUIRE(zeropp_outer_step(element, on_device.data(), anchors_there.data(), momenta_there.data(),
                                  means_there.data(), n, 0.6f, 0.8f, alpha, stream.native()) == zeropp_success);
        stream.exec().wait();
        REQUIRE(zeropp_test::difference(widened(on_device.read()), widened(weights)) == "");
        anchors.assign(outer.anchor().data(), outer.anchor().data() + n);
        REQUIRE(zeropp_test::difference(anchors_there.read(), anchors) == "");
        std::vector<float> momenta(n);
        std::memcpy(momenta.data(), outer.state().data() + outer.state().size() / 3, n * sizeof(float));
        REQUIRE(zeropp_test::difference(momenta_there.read(), momenta) == "");
    }
}

}  // namespace

TEST_CASE("C library: outer steps have the bits of outer_optimizer, and refuse its wrong options", "[simt][c]") {
    for (const float alpha : {0.0f, 0.3f}) {
        check_outer_steps<float>(zeropp_float32, alpha);
        check_outer_steps<zeropp::half>(zeropp_float16, alpha);
        check_outer_steps<zeropp::bfloat16>(zeropp_bfloat16, alpha);
    }
    const auto refused = [](float rate, float momentum, float alpha) {
        REQUIRE(zeropp_outer_step(zeropp_float32, nullptr, nullptr, nullptr, nullptr, 0, rate, momentum, alpha,
                                  nullptr) == zeropp_failure);
        return std::string(zeropp_error());
    };
    CHECK(refused(0, 0, 0) == "zeropp_outer_step: expected a learning rate above 0, given 0.000000");
    CHECK(refused(1, 1, 0) == "zeropp_outer_step: expected a momentum from 0 to less than 1, given 1.000000");
    CHECK(refused(1, 0, 2) == "zeropp_outer_step: expected an alpha from 0 to 1, given 2.000000");
}

TEST_CASE("C library: its pool keeps memory that is given back", "[simt][c]") {
    zeropp_c::aside beside;
    CHECK(simt::bytes_of_pools() == 0);
    for (int run = 0; run != 2; ++run) {
        beside.run([](const cuda_stream&, auto&... memory) { zeropp::workspace<zeropp_c::space>(1000, memory...); });
    }
    CHECK(simt::bytes_of_pools() == 1000);
}

TEST_CASE("codec: messages that kernels cannot load are refused before a kernel runs", "[simt]") {
    const simt::owned_stream stream;
    const simt::device_array<float> tensor(simt::tensor<float>(100, 0));
    zeropp::workspace<zeropp::device_space> message(1000);
    const auto all = zeropp::slices::single(100, 0, 100);
    const std::string words =
        "codec: expected messages aligned to 16 bytes, given some that start 4 bytes past a boundary";
    using codec = zeropp::codec<cuda_stream>;
    CHECK_THROWS_WITH(codec::write(stream.exec(), floats, tensor.view().data(), all, message.view().data() + 4), words);
    CHECK_THROWS_WITH(
        codec::read(stream.exec(), zeropp::message_sum{floats, message.view().data() + 4}, all, tensor.view().data()),
        words);
    CHECK(simt::pending(stream.native()) == 0);
}
