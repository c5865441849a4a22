/// Collectives on two streams inside CUDA graphs, by the rules of stream capture.

#include "simt/cuda_emulation.hpp"

#include "gpu/capture.hpp"
#include "kernels/codec_against_host.hpp"
#include "simt/device.hpp"
#include "simt/echoing_transport.hpp"
#include "support/catch.hpp"

#include <zeropp/collective/hierarchical_quantized_reduce_scatter.hpp>
#include <zeropp/collective/pipeline.hpp>
#include <zeropp/collective/quantized_all_gather.hpp>
#include <zeropp/collective/quantized_all_reduce.hpp>
#include <zeropp/execution/cuda_workspace.hpp>
#include <zeropp/quantizer/block_integer.hpp>
#include <zeropp/quantizer/cast_to.hpp>
#include <zeropp/topology/two_level.hpp>
#include <zeropp/transport/communicator.hpp>

#include <cstddef>
#include <string>
#include <vector>

namespace simt = zeropp_test::simt;
using zeropp::cuda_stream;

namespace {

constexpr std::size_t n = 5000;

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
        simt::two_streams on(two_nodes);
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
    CHECK(code_of([&] { zeropp::workspace<zeropp::device_space>(16); }) == cudaErrorStreamCaptureInvalidated);
    CHECK(numbers.read() == std::vector<int>{1, 2});
    // What is captured does not run, and streams are free again.
    CHECK(simt::pending(origin.native()) == 0);
    copy(other);
    other.exec().wait();
    CHECK(numbers.read() == std::vector<int>{2, 2});
}
