/// \file
/// A rank dies. The survivors divide the weights anew: the lost shard comes from hpZ's copies, not from a checkpoint,
/// and its moments from a mirror.

#include <zeropp/elastic.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <vector>

int main() try {
    using namespace std::chrono_literals;
    constexpr std::size_t n = 10'000;
    constexpr int lost_rank = 4;
    std::atomic<int> right = 0;

    const auto work = [&](zeropp::thread_transport transport) {
        const zeropp::host exec;
        const zeropp::cast_to<float> exact;
        const zeropp::block_integer<8, 256> int8;
        zeropp::communicator comm(zeropp::two_level::of_nodes({3, 2, 2}), transport);
        const zeropp::partition part(n, comm.size());
        std::vector<float> shard(part.size(comm.rank())), moments(shard.size(), 0.5f), full(n);
        for (std::size_t i = 0; i != shard.size(); ++i) shard[i] = static_cast<float>(part.offset(comm.rank()) + i);

        // [before]
        using secondary_type = zeropp::secondary_partition<zeropp::cast_to<float>, zeropp::host_space>;
        std::vector<std::byte> storage(secondary_type::storage_bytes(exact, n, comm.group_size()));
        secondary_type secondary(exact, n, comm.group_size(), comm.index(), storage);
        zeropp::quantized_all_gather(exec, comm, exact, shard, full);
        secondary.store(exec, full, 1);  // each node now holds all weights
        // [before]

        // [mirror]
        const std::vector<int> partner_ranks = zeropp::partner_ranks(comm.topology(), comm.rank());
        zeropp::communicator partners(comm.topology().shrink(partner_ranks), comm.world().split(partner_ranks));
        using mirror_type = zeropp::shard_mirror<zeropp::cast_to<zeropp::bfloat16>, zeropp::host_space>;
        std::vector<std::byte> copies(mirror_type::storage_bytes({}, comm.topology(), n, comm.rank()));
        mirror_type mirror({}, comm.topology(), comm.rank(), n, copies);
        zeropp::mirror_shards(exec, partners, mirror, moments, 1);  // again every few steps
        // [mirror]

        if (comm.rank() == lost_rank) return;  // as if it had lost its power
        try {
            zeropp::quantized_all_gather(exec, comm, int8, shard, full);
        } catch (const zeropp::timeout_error&) {
        }
        // [recover]
        auto [next, ranks] = comm.shrink();
        const zeropp::survivors_of survivors{comm.topology(), ranks};
        const zeropp::partition new_part(n, next.size());
        std::vector<float> new_shard(new_part.size(next.rank())), new_moments(new_shard.size());
        const std::uint64_t version = zeropp::recover_weights(exec, next, survivors, secondary, n, new_shard);
        zeropp::redistribute_shards(exec, next, survivors, n, shard, new_shard);      // masters of living owners
        zeropp::redistribute_shards(exec, next, survivors, n, moments, new_moments);  // lost moments stay zero
        // [recover]
        // [moments]
        zeropp::recover_weights(exec, next, survivors, mirror, n, new_moments, {.lost_shards_only = true});
        // [moments]
        bool equal = version == 1;
        for (std::size_t i = 0; i != new_shard.size(); ++i) {
            equal =
                equal && new_moments[i] == 0.5f && new_shard[i] == static_cast<float>(new_part.offset(next.rank()) + i);
        }
        zeropp::quantized_all_gather(exec, next, int8, new_shard, full);
        if (equal) ++right;
        if (next.rank() == 0) std::printf("went on with %d ranks and all %zu weights\n", next.size(), full.size());
    };
    zeropp::run_on_threads(7, work, {.timeout = 2s});
    return right == 6 ? 0 : 1;
} catch (const std::exception& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    return 1;
}
