/// \file
/// The overloads that bring a workspace keep it until no work uses it, whatever is thrown in between.

#include "collective/ranks.hpp"
#include "support/catch.hpp"
#include "support/counting_resource.hpp"

#include <zeropp/codec/host.hpp>
#include <zeropp/collective/hierarchical_quantized_reduce_scatter.hpp>
#include <zeropp/collective/prologue.hpp>
#include <zeropp/collective/quantized_all_gather.hpp>
#include <zeropp/collective/secondary_partition_gather.hpp>
#include <zeropp/execution/host_queue.hpp>
#include <zeropp/quantizer/block_integer.hpp>

#include <atomic>
#include <thread>

using namespace collective_test;

namespace {

constexpr zeropp::block_integer<8, 256> int8;
constexpr zeropp::block_integer<4, 128, zeropp::signed_absmax, zeropp::half> int4;

/// Refuses on the calling thread, as MPI does for a queue without MPI_THREAD_MULTIPLE.
class refusing_transport {
public:
    int rank() const { return 0; }
    int size() const { return 2; }
    template <class E>
    void all_gather(const E&, const std::byte*, std::byte*, std::size_t) {
        throw zeropp::error("refused");
    }
    template <class E>
    void all_to_all(const E&, const std::byte*, std::byte*, std::size_t) {
        throw zeropp::error("refused");
    }
    refusing_transport split(std::span<const int>) { return {}; }
};

/// Calls with a queue that is slow to begin; whether all its work was done when "refused" came out.
template <class Call>
bool waits_after_refusal(Call call) {
    std::atomic<bool> begun = false;
    const zeropp::host_queue queue;
    queue.enqueue([&begun] {
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        begun = true;
    });
    try {
        call(queue);
    } catch (const zeropp::error& e) {
        return begun && std::string(e.what()) == "refused";
    }
    return false;
}

}  // namespace

TEST_CASE("allocating overloads: a transport that throws leaves no work behind") {
    zeropp::communicator comm(zeropp::two_level(1, 2), refusing_transport());
    const std::vector<float> shard(500);
    std::vector<float> full(1000), out(500);
    REQUIRE(
        waits_after_refusal([&](const auto& queue) { zeropp::quantized_all_gather(queue, comm, int8, shard, full); }));
    REQUIRE(waits_after_refusal([&](const auto& queue) {
        zeropp::hierarchical_quantized_reduce_scatter(queue, comm, zeropp::hops{int8, int4}, full, out);
    }));
    using secondary_type = zeropp::secondary_partition<zeropp::block_integer<8, 256>, zeropp::host_space>;
    zeropp::workspace<zeropp::host_space> storage(secondary_type::storage_bytes(int8, 1000, 2));
    secondary_type secondary(int8, 1000, 2, 0, storage.view());
    REQUIRE(waits_after_refusal([&](const auto& queue) {
        secondary.store(queue, full, 1);
        zeropp::secondary_partition_gather(queue, comm, secondary, 1, full);
    }));
}

TEST_CASE("scratch from the caller's resource: the same result, and all of it back once no work uses it") {
    constexpr std::size_t n = 3001;
    zeropp_test::counting_resource resource;
    std::atomic<int> wrong = 0;
    zeropp::run_on_threads(4, [&](zeropp::thread_transport& world) {
        zeropp::communicator comm(zeropp::two_level(2, 2), world);
        const zeropp::partition part(n, 4);
        std::vector<float> full(n);
        for (std::size_t i = 0; i != n; ++i)
            full[i] = static_cast<float>((i * 7 + at(world.rank()) * 13) % 101) - 50.0f;
        std::vector<float> shard(part.size(world.rank()));
        std::vector<float> expected_shard = shard;
        std::vector<float> gathered(n);
        std::vector<float> expected(n);
        const zeropp::host_queue intra_node;
        const zeropp::host_queue inter_node;
        const zeropp::pipeline<zeropp::host_queue> both{intra_node, inter_node};
        const zeropp::reduce_options in_chunks{.chunks = 3};
        const zeropp::hops by_hop{int8, int4};
        zeropp::hierarchical_quantized_reduce_scatter(both, comm, by_hop, full, expected_shard, in_chunks);
        zeropp::hierarchical_quantized_reduce_scatter(both, comm, by_hop, full, shard, in_chunks, &resource);
        zeropp::quantized_all_gather(intra_node, comm, int8, shard, expected);
        zeropp::quantized_all_gather(intra_node, comm, int8, shard, gathered, {}, &resource);
        if (shard != expected_shard || gathered != expected) ++wrong;
        zeropp::quantized_all_gather(zeropp::host{}, comm, int8, shard, gathered, {.chunks = 2},
                                     static_cast<std::pmr::memory_resource*>(&resource));
        if (gathered != expected) ++wrong;
    });
    CHECK(wrong == 0);
    CHECK(resource.allocations() == 3 * 4);
    CHECK(resource.live() == 0);
    CHECK(resource.mistakes() == 0);

    // Also when a call fails halfway.
    zeropp::communicator comm(zeropp::two_level(1, 2), refusing_transport());
    const std::vector<float> shard(500);
    std::vector<float> full(1000);
    REQUIRE(waits_after_refusal(
        [&](const auto& queue) { zeropp::quantized_all_gather(queue, comm, int8, shard, full, {}, &resource); }));
    CHECK(resource.live() == 0);
}

TEST_CASE("run to completion: errors of the work, and of both, and none") {
    const zeropp::host_queue queue;
    const zeropp::pipeline<zeropp::host_queue> both{queue, queue};
    refusing_transport transport;
    const auto fails = [&] { queue.enqueue([] { throw zeropp::error("in the queue"); }); };
    REQUIRE_THROWS_WITH(zeropp::detail::run_to_completion(both, transport, fails), "in the queue");
    const auto fails_twice = [&] {
        fails();
        throw zeropp::error("before");
    };
    REQUIRE_THROWS_WITH(zeropp::detail::run_to_completion(both, transport, fails_twice), "before");
    bool done = false;
    zeropp::detail::run_to_completion(both, transport, [&] { queue.enqueue([&done] { done = true; }); });
    REQUIRE(done);
}
