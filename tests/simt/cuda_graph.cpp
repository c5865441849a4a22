/// Collectives on two streams: inside CUDA graphs, by the rules of stream capture, and with scratch from a resource.

#include "simt/cuda_emulation.hpp"

#include "gpu/capture.hpp"
#include "kernels/codec_against_host.hpp"
#include "simt/device.hpp"
#include "support/catch.hpp"

#include <zeropp/collective/hierarchical_quantized_reduce_scatter.hpp>
#include <zeropp/collective/pipeline.hpp>
#include <zeropp/collective/quantized_all_gather.hpp>
#include <zeropp/collective/quantized_all_reduce.hpp>
#include <zeropp/core/error.hpp>
#include <zeropp/execution/cuda_stream.hpp>
#include <zeropp/execution/cuda_workspace.hpp>
#include <zeropp/quantizer/block_integer.hpp>
#include <zeropp/quantizer/cast_to.hpp>
#include <zeropp/topology/two_level.hpp>
#include <zeropp/transport/communicator.hpp>

#include <concepts>
#include <cstddef>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace simt = zeropp_test::simt;
using zeropp::cuda_stream;
using zeropp::device_space;
using zeropp::workspace;

namespace {

constexpr std::size_t n = 5000;

/// One rank of two that hears itself in place of the other one.
class echoing_transport {
public:
    int rank() const { return 0; }
    int size() const { return 2; }
    void all_gather(const zeropp::cuda_stream& exec, const std::byte* send, std::byte* recv, std::size_t bytes) {
        if (refuses) throw zeropp::error("refused");
        for (std::size_t r = 0; r != 2; ++r) {
            if (recv + r * bytes != send) exec.copy(recv + r * bytes, send, bytes);
        }
    }
    void all_to_all(const zeropp::cuda_stream& exec, const std::byte* send, std::byte* recv, std::size_t bytes) {
        exec.copy(recv, send, 2 * bytes);
    }
    echoing_transport split(std::span<const int>) { return *this; }

    bool refuses = false;
};

/// What a collective on two streams runs on: as one of two ranks, of a node or of two.
struct two_streams {
    simt::owned_stream intra_node;
    simt::owned_stream inter_node;
    zeropp::pipeline<zeropp::cuda_stream> exec{intra_node.exec(), inter_node.exec()};
    zeropp::communicator<zeropp::two_level, echoing_transport> comm;

    explicit two_streams(bool two_nodes)
        : comm(two_nodes ? zeropp::two_level(2, 1) : zeropp::two_level(1, 2), echoing_transport()) {}
};

/// What ends a capture of work() on `origin`.
template <class Work>
cudaError_t end_of_capture(const cuda_stream& origin, Work work) {
    zeropp::detail::require_cuda(cudaStreamBeginCapture(origin.native(), cudaStreamCaptureModeGlobal), "begin");
    try {
        work();
    } catch (const zeropp::cuda_error&) {
        // What ends the capture says as much.
    }
    cudaGraph_t graph = nullptr;
    const cudaError_t code = cudaStreamEndCapture(origin.native(), &graph);
    if (graph != nullptr) cudaGraphDestroy(graph);
    return code;
}

/// call(pipeline, communicator, output) can be captured, by the rules of joining, and leaves the same in the output
/// when it is replayed as when it is called.
template <class Call>
void check_replay(const std::string& what, Call call) {
    for (const bool two_nodes : {false, true}) {
        INFO(what << (two_nodes ? ", two nodes" : ", one node"));
        two_streams on(two_nodes);
        const auto& intra_node = on.intra_node;
        const simt::device_array<float> expected(n);
        const simt::device_array<float> replayed(n);
        const simt::device_array<std::byte> scratch(1 << 20);
        call(on.exec, on.comm, expected, scratch.view());
        intra_node.exec().wait();
        const zeropp_test::gpu::captured graph(intra_node.native(), cudaStreamCaptureModeGlobal,
                                               [&] { call(on.exec, on.comm, replayed, scratch.view()); });
        CHECK(zeropp_test::difference(replayed.read(), expected.read()) != "");
        for (int run = 0; run != 2; ++run) {
            graph.run(intra_node.native());
            intra_node.exec().wait();
            CHECK(zeropp_test::difference(replayed.read(), expected.read()) == "");
        }
    }
    CHECK(simt::device_fault() == "");
}

}  // namespace

TEST_CASE("graph: collectives on two streams are captured from the inner one, and replayed", "[simt][graph]") {
    const zeropp::block_integer<8, 256> eight_bits;
    const zeropp::block_integer<4, 128> four_bits;
    const auto elements = simt::tensor<float>(n, 0);
    const simt::device_array<float> full(elements);
    const simt::device_array<float> none(0);
    check_replay("nothing", [&](const auto& exec, auto& comm, const auto& out, auto scratch) {
        zeropp::quantized_all_gather(exec, comm, eight_bits, none.view(), none.view(), {}, scratch);
        exec.intra_node.copy(out.data(), full.data(), n * sizeof(float));
    });
    const auto slice = [](const simt::device_array<float>& all) { return all.view().subview(0, n / 2); };
    check_replay("all-gather", [&](const auto& exec, auto& comm, const auto& out, auto scratch) {
        zeropp::quantized_all_gather(exec, comm, eight_bits, slice(full), out.view(), {.chunks = 3}, scratch);
    });
    // With messages in place, nothing is decoded, and the third stream takes no part.
    const simt::owned_stream third;
    const auto on_three = [&](const auto& q, int chunks) {
        check_replay("all-gather on three streams", [&](const auto& exec, auto& comm, const auto& out, auto scratch) {
            const zeropp::pipeline three(exec.intra_node, exec.inter_node, third.exec());
            zeropp::quantized_all_gather(three, comm, q, slice(full), out.view(), {.chunks = chunks}, scratch);
        });
    };
    on_three(eight_bits, 3);
    on_three(zeropp::cast_to<float>(), 1);
    check_replay("reduce-scatter", [&](const auto& exec, auto& comm, const auto& out, auto scratch) {
        zeropp::hierarchical_quantized_reduce_scatter(exec, comm, zeropp::hops{eight_bits, four_bits}, full.view(),
                                                      slice(out), {.chunks = 3}, scratch);
    });
    check_replay("all-reduce", [&](const auto& exec, auto& comm, const auto& out, auto scratch) {
        zeropp::quantized_all_reduce(exec, comm, zeropp::hops{eight_bits, four_bits, eight_bits}, full.view(),
                                     out.view(), {.chunks = 3, .algorithm = zeropp::all_reduce_algorithm::two_shot},
                                     scratch);
    });
    check_replay("all-reduce of everybody's", [&](const auto& exec, auto& comm, const auto& out, auto scratch) {
        zeropp::quantized_all_reduce(exec, comm, zeropp::hops{eight_bits, four_bits, eight_bits}, full.view(),
                                     out.view(), {.algorithm = zeropp::all_reduce_algorithm::one_shot}, scratch);
    });
}

TEST_CASE("graph: the doubles know the rules of capture", "[simt][graph]") {
    const simt::owned_stream origin;
    const simt::owned_stream other;
    const simt::device_array<int> numbers(std::vector<int>{1, 2});
    const auto copy = [&](const simt::owned_stream& s) {
        s.exec().copy(numbers.data(), numbers.data() + 1, sizeof(int));
    };
    const auto code_of = [&](auto work) { return end_of_capture(origin.exec(), work); };
    CHECK(code_of([&] { copy(origin); }) == cudaSuccess);
    CHECK(code_of([&] { origin.exec().wait(other.exec().record()); }) == cudaErrorStreamCaptureInvalidated);
    CHECK(code_of([&] { origin.exec().wait(); }) == cudaErrorStreamCaptureInvalidated);
    CHECK(code_of([&] {
              other.exec().wait(origin.exec().record());
              copy(other);
          }) == cudaErrorStreamCaptureUnjoined);
    CHECK(code_of([&] {
              other.exec().wait(origin.exec().record());
              copy(other);
              origin.exec().wait(other.exec().record());
          }) == cudaSuccess);
    CHECK(code_of([&] {
              other.exec().wait(origin.exec().record());
              const auto early = other.exec().record();
              copy(other);
              origin.exec().wait(early);
          }) == cudaErrorStreamCaptureUnjoined);
    CHECK(code_of([&] { workspace<device_space>(16); }) == cudaErrorStreamCaptureInvalidated);
    CHECK(numbers.read() == std::vector<int>{1, 2});
    // What is captured does not run, and streams are free again.
    CHECK(simt::pending(origin.native()) == 0);
    copy(other);
    other.exec().wait();
    CHECK(numbers.read() == std::vector<int>{2, 2});
}

namespace {

/// As cuda::stream_ref: made of a stream without being asked.
struct stream_reference {
    cudaStream_t native;
    stream_reference(cudaStream_t stream) : native(stream) {}
    cudaStream_t get() const { return native; }
};

/// What was asked of a resource, in words. Memory that is given back is poisoned in the stream's turn, as another user
/// of the pool would.
struct stream_ordered {
    std::vector<std::string> log;
    std::vector<void*> given_back;
    cudaStream_t expected = nullptr;
    bool refuses = false;

    stream_ordered() = default;
    stream_ordered(const stream_ordered&) = delete;
    stream_ordered& operator=(const stream_ordered&) = delete;
    ~stream_ordered() {
        for (void* const p : given_back) cudaFree(p);
    }

    void* take(cudaStream_t stream, std::size_t bytes, std::size_t alignment) {
        if (refuses) throw std::runtime_error("no memory");
        note("allocate", stream, bytes, alignment);
        void* p = nullptr;
        zeropp::detail::require_cuda(cudaMalloc(&p, bytes), "cudaMalloc");
        // Whoever had it before may use it until the stream comes here.
        cudaMemsetAsync(p, 0xee, bytes, stream);
        return p;
    }
    void give_back(cudaStream_t stream, void* p, std::size_t bytes, std::size_t alignment) {
        note("deallocate", stream, bytes, alignment);
        given_back.push_back(p);
        cudaMemsetAsync(p, 0xff, bytes, stream);
    }

private:
    void note(const std::string& what, cudaStream_t stream, std::size_t bytes, std::size_t alignment) {
        log.push_back(what + " " + std::to_string(bytes) + " aligned to " + std::to_string(alignment) +
                      (stream == expected ? "" : " on another stream"));
    }
};

/// In today's words, and in those of before.
struct resource : stream_ordered {
    void* allocate(stream_reference s, std::size_t bytes, std::size_t alignment) {
        return take(s.native, bytes, alignment);
    }
    void deallocate(stream_reference s, void* p, std::size_t bytes, std::size_t alignment) {
        give_back(s.native, p, bytes, alignment);
    }
};
struct earlier_resource : stream_ordered {
    void* allocate_async(std::size_t bytes, std::size_t alignment, stream_reference s) {
        return take(s.native, bytes, alignment);
    }
    void deallocate_async(void* p, std::size_t bytes, std::size_t alignment, stream_reference s) {
        give_back(s.native, p, bytes, alignment);
    }
};
static_assert(zeropp::device_memory_resource<resource> && zeropp::device_memory_resource<earlier_resource>);
static_assert(!zeropp::device_memory_resource<stream_ordered> && !zeropp::device_memory_resource<int>);
static_assert(zeropp::scratch_in<resource&, device_space> && !zeropp::scratch_in<resource&, zeropp::host_space>);

template <class Resource>
void check_workspace() {
    const simt::owned_stream stream;
    Resource pool;
    pool.expected = stream.native();
    {
        workspace<device_space> some(1000, stream.exec(), pool);
        const workspace<device_space> none(0, stream.exec(), pool);
        CHECK(some.view().size() == 1000);
        CHECK(none.view().size() == 0);
        workspace<device_space> taken(16);
        taken = std::move(some);
        CHECK(taken.view().size() == 1000);
        CHECK(pool.log == std::vector<std::string>{"allocate 1000 aligned to 16"});
    }
    CHECK(pool.log == std::vector<std::string>{"allocate 1000 aligned to 16", "deallocate 1000 aligned to 16"});
    pool.refuses = true;
    CHECK_THROWS_WITH(workspace<device_space>(8, stream.exec(), pool), "no memory");
    stream.exec().wait();
}

}  // namespace

TEST_CASE("workspace of device memory: from a resource, in the stream's order", "[simt][workspace]") {
    const simt::live_objects before = simt::live();
    check_workspace<resource>();
    check_workspace<earlier_resource>();
    CHECK(simt::live() == before);
}

TEST_CASE("cuda_stream: from what knows a stream", "[simt][cuda_stream]") {
    const simt::owned_stream stream;
    const cuda_stream same{stream_reference(stream.native())};
    CHECK(same.native() == stream.native());
    STATIC_REQUIRE_FALSE(std::constructible_from<cuda_stream, int>);
    STATIC_REQUIRE_FALSE(std::convertible_to<stream_reference, cuda_stream>);
}

namespace {

/// call(pipeline, communicator, output, scratch) does the same with scratch of a resource as with memory, and blocks
/// nowhere.
template <class Call>
void check_resource(const std::string& what, Call call) {
    for (const bool two_nodes : {false, true}) {
        INFO(what << (two_nodes ? ", two nodes" : ", one node"));
        two_streams on(two_nodes);
        const auto& intra_node = on.intra_node;
        const simt::device_array<float> expected(n);
        const simt::device_array<float> given(n);
        workspace<device_space> scratch(1 << 20);
        call(on.exec, on.comm, expected, scratch.view());
        intra_node.exec().wait();

        resource pool;
        pool.expected = intra_node.native();
        const std::size_t waits = simt::calls("cudaStreamSynchronize") + simt::calls("cudaEventSynchronize");
        call(on.exec, on.comm, given, pool);
        CHECK(simt::calls("cudaStreamSynchronize") + simt::calls("cudaEventSynchronize") == waits);
        CHECK(simt::pending(intra_node.native()) > 0);
        CHECK(pool.log.size() == 2);
        intra_node.exec().wait();
        CHECK(zeropp_test::difference(given.read(), expected.read()) == "");
        CHECK(simt::pending(on.inter_node.native()) == 0);
    }
    CHECK(simt::device_fault() == "");
}

}  // namespace

TEST_CASE("scratch from a device's resource: nothing waits, and it is free once the work is done",
          "[simt][workspace]") {
    const zeropp::block_integer<8, 256> eight_bits;
    const zeropp::block_integer<4, 128> four_bits;
    const simt::device_array<float> full(simt::tensor<float>(n, 0));
    const auto slice = [](const simt::device_array<float>& all) { return all.view().subview(0, n / 2); };
    check_resource("all-gather", [&](const auto& exec, auto& comm, const auto& out, auto&& scratch) {
        zeropp::quantized_all_gather(exec, comm, eight_bits, slice(full), out.view(), {.chunks = 2}, scratch);
    });
    check_resource("reduce-scatter", [&](const auto& exec, auto& comm, const auto& out, auto&& scratch) {
        zeropp::hierarchical_quantized_reduce_scatter(exec, comm, zeropp::hops{eight_bits, four_bits}, full.view(),
                                                      slice(out), {.chunks = 3}, scratch);
    });
    for (const auto route : {zeropp::all_reduce_algorithm::two_shot, zeropp::all_reduce_algorithm::one_shot}) {
        check_resource("all-reduce", [&](const auto& exec, auto& comm, const auto& out, auto&& scratch) {
            zeropp::quantized_all_reduce(exec, comm, zeropp::hops{eight_bits, four_bits, eight_bits}, full.view(),
                                         out.view(), {.chunks = 2, .algorithm = route}, scratch);
        });
    }
}

TEST_CASE("scratch from a device's resource: a call that fails halfway waits before it gives back",
          "[simt][workspace]") {
    const zeropp::block_integer<8, 256> int8;
    const simt::device_array<float> shard(simt::tensor<float>(500, 0));
    const simt::device_array<float> full(1000);
    const simt::owned_stream intra_node;
    const simt::owned_stream inter_node;
    echoing_transport transport;
    transport.refuses = true;
    zeropp::communicator comm(zeropp::two_level(1, 2), transport);
    resource pool;
    pool.expected = intra_node.native();
    CHECK_THROWS_WITH(zeropp::quantized_all_gather(zeropp::pipeline<cuda_stream>{intra_node.exec(), inter_node.exec()},
                                                   comm, int8, shard.view(), full.view(), {}, pool),
                      "refused");
    CHECK(pool.log.size() == 2);
    CHECK(simt::pending(intra_node.native()) <= 1);  // what poisons the memory
    intra_node.exec().wait();
}
