/// \file
/// The hot path allocates nothing: counted, over all threads, after a first step. Elsewhere any allocation may fail:
/// each does here, in turn.

#include "collective/repeated_step.hpp"
#include "support/allocation_count.hpp"
#include "support/catch.hpp"
#include "support/expectations.hpp"

#include <zeropp/collective/quantized_update.hpp>
#include <zeropp/execution/host.hpp>
#include <zeropp/execution/host_queue.hpp>
#include <zeropp/quantizer/cast_to.hpp>
#include <zeropp/transport/counting.hpp>

#include <barrier>
#include <latch>
#include <new>
#include <optional>
#include <type_traits>

using namespace collective_test;

namespace {

/// Allocations of all ranks together in the steps after the first.
template <class Execution>
std::size_t allocations_of_later_steps(const node_map& map) {
    std::size_t counted = 0;
    std::barrier ranks(map.ranks());
    on_ranks(map.ranks(), "allocations on " + map.name, [&](zeropp::thread_transport& transport) {
        zeropp::communicator comm(map.topology(), zeropp::counting(transport, map.topology()));
        const Execution intra_node, inter_node;
        const zeropp::pipeline<Execution> exec{intra_node, inter_node};
        repeated_step step(comm);
        // A queue grows to the depth that it meets: the first step meets the greatest, all of itself at once.
        std::latch enqueued(1);
        if constexpr (!std::is_same_v<Execution, zeropp::host>) {
            intra_node.enqueue([&] { enqueued.wait(); });
            inter_node.enqueue([&] { enqueued.wait(); });
        }
        step.enqueue(exec, 0);
        enqueued.count_down();
        intra_node.wait();
        inter_node.wait();
        ranks.arrive_and_wait();
        const std::size_t before = zeropp_test::allocation_count;
        ranks.arrive_and_wait();
        for (std::uint64_t s = 1; s != 4; ++s) {
            step.enqueue(exec, s);
            intra_node.wait();
            inter_node.wait();
        }
        ranks.arrive_and_wait();
        if (comm.rank() == 0) counted = zeropp_test::allocation_count - before;
        ranks.arrive_and_wait();
    });
    return counted;
}

}  // namespace

TEST_CASE("collectives allocate nothing after the first step") {
    if (!zeropp_test::counts_allocations()) {
        WARN("skipped: allocations cannot be counted here");
        return;
    }
    for (const std::size_t m : {std::size_t{0}, std::size_t{1}, std::size_t{3}, std::size_t{4}, std::size_t{8}}) {
        INFO(node_maps()[m].name);
        CHECK(allocations_of_later_steps<zeropp::host>(node_maps()[m]) == 0);
        CHECK(allocations_of_later_steps<zeropp::host_queue>(node_maps()[m]) == 0);
    }
}

namespace {

using int8 = zeropp::block_integer<8, 256>;
using int4 = zeropp::block_integer<4, 128, zeropp::signed_absmax, zeropp::half>;
using replica_type = zeropp::secondary_replica<zeropp::cast_to<float>, zeropp::host_space>;

/// What a rank's work results in.
struct outcome {
    std::vector<float> weights, again, updated, gradients;
};

/// Makes everything that allocates and calls every overload that does. `attempt` runs each piece of it: a piece whose
/// allocation failed can be run again.
template <class Execution, class Attempt>
outcome with_memory_of_their_own(zeropp::thread_transport& transport, const node_map& map, Attempt attempt) {
    constexpr std::size_t n = 1003;
    constexpr std::uint64_t version = 1;
    const int8 q;
    const int group_size = map.topology().group_size(0);
    const auto full = tensor_of(n, reference::fp32, 1 + at(transport.rank()));
    const auto shard = reference::slice_of(full, at(map.ranks()), at(transport.rank()));
    outcome results{std::vector<float>(n), std::vector<float>(n), std::vector<float>(n),
                    std::vector<float>(shard.size())};
    std::vector<std::byte> message, kept;

    std::optional<zeropp::communicator<zeropp::two_level, zeropp::thread_transport>> made;
    attempt([&] { made.emplace(map.topology(), transport); });
    auto& comm = *made;
    std::optional<Execution> exec;
    attempt([&] { exec.emplace(); });
    attempt([&] { zeropp::quantized_all_gather(*exec, comm, q, shard, results.weights); });
    attempt([&] {
        message.resize(zeropp::secondary_partition<int8, zeropp::host_space>::storage_bytes(q, n, group_size));
        kept.resize(replica_type::storage_bytes(comm.topology(), n));
    });
    zeropp::secondary_partition<int8, zeropp::host_space> secondary(q, n, group_size, comm.index(), message);
    secondary.store(zeropp::host{}, results.weights, version);
    attempt([&] { zeropp::secondary_partition_gather(*exec, comm, secondary, version, results.again); });
    std::optional<replica_type> replica;
    attempt([&] { replica.emplace(comm.topology(), comm.rank(), n, kept); });
    attempt([&] { zeropp::quantized_update(*exec, comm, q, shard, replica->to(version, results.updated)); });
    attempt([&] {
        zeropp::hierarchical_quantized_reduce_scatter(*exec, comm, zeropp::hops{q, int4()}, full, results.gradients,
                                                      {.chunks = 2});
    });
    return results;
}

/// No failure: the results to compare with.
constexpr auto at_once = [](auto work) { work(); };

}  // namespace

TEMPLATE_TEST_CASE("a rank alone goes on after any allocation that failed", "", zeropp::host, zeropp::host_queue) {
    if (!zeropp_test::counts_allocations()) {
        WARN("skipped: allocations cannot be made to fail here");
        return;
    }
    const node_map& map = node_maps()[0];
    outcome given, expected;
    int failures = 0;
    on_ranks(1, "failing allocations", [&](zeropp::thread_transport& transport) {
        expected = with_memory_of_their_own<TestType>(transport, map, at_once);
        given = with_memory_of_their_own<TestType>(transport, map, [&](auto work) {
            for (long granted = 0;; ++granted) {
                try {
                    const zeropp_test::failing_allocation failing(granted);
                    work();
                    return;
                } catch (const std::bad_alloc&) {
                    ++failures;
                }
            }
        });
    });
    CHECK(failures >= 6);
    CHECK(difference(given.weights, expected.weights) == "");
    CHECK(difference(given.again, expected.again) == "");
    CHECK(difference(given.updated, expected.updated) == "");
    CHECK(difference(given.gradients, expected.gradients) == "");
}

TEMPLATE_TEST_CASE("an allocation that fails on one rank ends all of them, wherever it is", "", zeropp::host,
                   zeropp::host_queue) {
    if (!zeropp_test::counts_allocations()) {
        WARN("skipped: allocations cannot be made to fail here");
        return;
    }
    for (const std::size_t m : {std::size_t{1}, std::size_t{2}}) {
        const node_map& map = node_maps()[m];
        long granted = 0;
        std::string error;
        do {
            const std::string what = "failing allocation " + std::to_string(granted) + " on " + map.name;
            bool happened = false;
            error = zeropp_test::thrown<std::bad_alloc>([&] {
                on_ranks(4, what, [&](zeropp::thread_transport& transport) {
                    const bool fails = transport.rank() == 1;
                    const zeropp_test::failing_allocation failing(fails ? granted : -1);
                    with_memory_of_their_own<TestType>(transport, map, at_once);
                    if (fails) happened = zeropp_test::failing_allocation::happened();
                });
            });
            INFO(what);
            // Whoever fails says so: nothing is swallowed, and nobody else's complaint comes first.
            CHECK_FALSE(happened);
            CHECK((error == "std::bad_alloc" || error == "<nothing thrown>"));
            ++granted;
        } while (error == "std::bad_alloc");
        CHECK(granted > 8);
    }
}

TEST_CASE("a thread that cannot be started releases those that were") {
    if (!zeropp_test::counts_allocations()) {
        WARN("skipped: allocations cannot be made to fail here");
        return;
    }
    int failures = 0;
    for (long granted = 0;; ++granted) {
        try {
            const zeropp_test::failing_allocation failure(granted);
            zeropp::run_on_threads(4, [](zeropp::thread_transport& transport) {
                std::byte all[4] = {};
                transport.all_gather(zeropp::host{}, all + transport.rank(), all, 1);
            });
            if (!failure.happened()) break;
        } catch (const std::bad_alloc&) {
            ++failures;
        }
    }
    CHECK(failures > 4);
}
