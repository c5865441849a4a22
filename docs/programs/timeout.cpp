/// \file
/// A node that dies is an error on the other ranks, within the timeout. They shrink their communicator and go on.

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
    constexpr int ranks = 4, lost_node = 1;
    const zeropp::block_integer<8, 256> int8;
    std::atomic<int> timeouts = 0;

    // [timeout]
    const auto work = [&](zeropp::thread_transport transport) {
        zeropp::communicator comm(zeropp::two_level(2, 2), transport);
        if (comm.group_id() == lost_node) return;  // as if it had lost its power
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
        // [timeout]
        // [shrink]
        auto [next, survivors] = comm.shrink();  // survivors[r] is the old rank of rank r
        const zeropp::partition part(4000, next.size());
        const std::vector<float> new_shard(part.size(next.rank()), 1.0f);  // from the checkpoint, divided anew
        zeropp::quantized_all_gather(zeropp::host{}, next, int8, new_shard, full);
        if (next.rank() == 0) std::printf("went on with %d ranks\n", next.size());
        // [shrink]
        if (full.back() != 1.0f || survivors.back() != 1) throw zeropp::error("wrong weights or ranks");
    };
    zeropp::run_on_threads(ranks, work, {.timeout = 2s});
    return timeouts == 4 ? 0 : 1;
} catch (const std::exception& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    return 1;
}
