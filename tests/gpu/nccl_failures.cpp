/// Failures of ranks under NCCL, between four processes that share a GPU: a rank is killed, comes too late, or leaves.
/// The others must end at their deadline, and go on without it. And a rank is killed while a graph has NCCL's calls.

#include "gpu/capture.hpp"
#include "gpu/device.hpp"
#include "gpu/nccl_job.hpp"
#include "simt/nccl_graph.hpp"

#include <zeropp/transport/nccl.hpp>

#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <string>
#include <vector>

namespace {

namespace gpu = zeropp_test::gpu;
using namespace std::chrono_literals;
using zeropp::nccl_transport;
using zeropp_test::expectations;

constexpr int ranks = 4;
constexpr int lost = 3;
constexpr std::chrono::seconds timeout = 5s;

/// The numbers of all ranks. The arrays outlive this call: work that was given up may still use them.
std::vector<int> gathered(nccl_transport& transport, const zeropp::cuda_stream& stream, int own) {
    const auto& send = *new gpu::device_array<int>(std::vector<int>{own});
    const auto& received = *new gpu::device_array<int>(static_cast<std::size_t>(transport.size()));
    transport.all_gather(stream, reinterpret_cast<const std::byte*>(send.data()),
                         reinterpret_cast<std::byte*>(received.data()), sizeof(int));
    zeropp::wait_for(transport, stream);
    return received.read();
}

void run_rank(const std::string& failure, int rank, const gpu::id_channel& channel, expectations& expect) {
    const auto& stream = *new gpu::owned_stream;
    auto world = nccl_transport::create(channel.share(ranks, rank), ranks, rank, {.timeout = timeout});
    expect(gathered(world, stream.exec(), rank) == std::vector<int>{0, 1, 2, 3}, "the numbers of all ranks");
    const gpu::device_array<int> numbers(std::vector<int>(static_cast<std::size_t>(ranks), rank));
    const std::string refused = zeropp_test::thrown<zeropp::precondition_error>([&] {
        const gpu::captured graph(stream.native(), cudaStreamCaptureModeThreadLocal,
                                  [&] { zeropp_test::simt::gather(world, stream, numbers); });
    });
    expect(refused.starts_with("nccl_transport: expected no timeout where a CUDA graph is captured"), refused);
    if (rank == lost) {
        if (failure == "killed") std::raise(SIGKILL);
        if (failure == "left") return;
        sleep(12);
    }
    const auto began = std::chrono::steady_clock::now();
    const std::string error = zeropp_test::thrown<zeropp::error>([&] { gathered(world, stream.exec(), rank); });
    const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - began;
    std::printf("%s: rank %d, after %.1f s: %s\n", failure.c_str(), rank, waited.count(), error.c_str());
    expect(!error.starts_with('<'), "an error");
    expect(waited < 3 * timeout, "an end within three timeouts");
    if (rank == lost) return;
    try {
        auto [next, survivors] = world.shrink(std::vector<int>{lost});
        expect(survivors == std::vector<int>{0, 1, 2}, "three survivors");
        expect(gathered(next, stream.exec(), rank) == std::vector<int>{0, 1, 2}, "the survivors' numbers");
    } catch (const zeropp::precondition_error& e) {
        std::printf("%s: rank %d cannot shrink: %s\n", failure.c_str(), rank, e.what());
    }
}

/// A rank dies while all have a graph of a gather, without a timeout. Prints how long the others' aborts took.
void run_rank_with_graph(int rank, const gpu::id_channel& channel, expectations& expect) {
    const auto& stream = *new gpu::owned_stream;
    const auto& numbers = *new gpu::device_array<int>(std::vector<int>(static_cast<std::size_t>(ranks), rank));
    auto& world = *new nccl_transport(nccl_transport::create(channel.share(ranks, rank), ranks, rank));
    const auto [error, waited] = zeropp_test::simt::failure_with_graph(world, stream, numbers, 4s, [&] {
        if (rank == lost) std::raise(SIGKILL);
    });
    std::printf("graph: rank %d, after %.1f s: %s\n", rank, waited.count(), error.c_str());
    std::fflush(stdout);
    expect(!error.starts_with('<'), "an error that NCCL has noticed");
    stream.exec().wait();
}

}  // namespace

int main() {
    int failed = 0;
    for (const std::string failure : {"killed", "late", "left", "graph"}) {
        const int result = gpu::run_job(
            ranks,
            [&](int rank, const gpu::id_channel& channel, expectations& expect) {
                if (failure == "graph") {
                    run_rank_with_graph(rank, channel, expect);
                } else {
                    run_rank(failure, rank, channel, expect);
                }
            },
            failure == "killed" || failure == "graph" ? lost : -1);
        if (result == gpu::skipped) {
            std::printf("skipped: no GPU here\n");
            return result;
        }
        std::printf("%s: %s\n", result == 0 ? "passed" : "FAILED", failure.c_str());
        std::fflush(stdout);
        failed += result;
    }
    return failed == 0 ? 0 : 1;
}
