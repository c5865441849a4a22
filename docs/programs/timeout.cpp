/// \file
/// A rank that does not come is an error on the others, within the timeout; and what an engine does then: let go of the
/// transport, make a new one with the ranks that it has, and go on from its last checkpoint.

#include <zeropp/zeropp.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

int main() try {
    using namespace std::chrono_literals;
    constexpr int ranks = 4, lost = 3;
    const zeropp::block_integer<8, 256> int8;
    std::atomic<int> timeouts = 0;

    // [timeout]
    const auto work = [&](zeropp::thread_transport transport) {
        zeropp::communicator comm(zeropp::two_level(2, 2), transport);
        if (comm.rank() == lost) return;  // as if it had been killed
        const std::vector<float> shard(1000, 1.0f);
        std::vector<float> full(4000);
        try {
            zeropp::quantized_all_gather(zeropp::host{}, comm, int8, shard, full);
        } catch (const zeropp::timeout_error& first) {
            if (comm.rank() == 0) std::printf("%s\n", first.what());
            ++timeouts;
        }
        // The transport and all that is split from it are of no further use: every call says the same.
        try {
            zeropp::quantized_all_gather(zeropp::host{}, comm, int8, shard, full);
        } catch (const zeropp::timeout_error&) {
            ++timeouts;
        }
    };
    zeropp::run_on_threads(ranks, work, {.timeout = 2s});
    // [timeout]

    // Again with the ranks that are left: here two, in a node each.
    zeropp::run_on_threads(2, [&](zeropp::thread_transport transport) {
        zeropp::communicator comm(zeropp::two_level(2, 1), transport);
        const std::vector<float> shard(2000, 1.0f);  // from the checkpoint, divided anew
        std::vector<float> full(4000);
        zeropp::quantized_all_gather(zeropp::host{}, comm, int8, shard, full);
        if (full.back() != 1.0f) throw zeropp::error("wrong weights");
        if (comm.rank() == 0) std::printf("went on with %d ranks\n", comm.size());
    });
    return timeouts == 2 * (ranks - 1) ? 0 : 1;
} catch (const std::exception& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    return 1;
}
