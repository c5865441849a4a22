/// \file
/// The hot path allocates nothing: counted, over all threads, after a first step.

#include "collective/repeated_step.hpp"
#include "support/allocation_count.hpp"
#include "support/catch.hpp"

#include <zeropp/execution/host.hpp>
#include <zeropp/execution/host_queue.hpp>
#include <zeropp/transport/counting.hpp>

#include <barrier>
#include <latch>
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
        const Execution inside, across;
        const zeropp::pipeline<Execution> exec{inside, across};
        repeated_step step(comm);
        // A queue grows to the depth that it meets: the first step meets the greatest, all of itself at once.
        std::latch enqueued(1);
        if constexpr (!std::is_same_v<Execution, zeropp::host>) {
            inside.enqueue([&] { enqueued.wait(); });
            across.enqueue([&] { enqueued.wait(); });
        }
        step.enqueue(exec, 0);
        enqueued.count_down();
        inside.wait();
        across.wait();
        ranks.arrive_and_wait();
        const std::size_t before = zeropp_test::allocation_count;
        ranks.arrive_and_wait();
        for (std::uint64_t s = 1; s != 4; ++s) {
            step.enqueue(exec, s);
            inside.wait();
            across.wait();
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
    for (const std::size_t m : {std::size_t{0}, std::size_t{1}, std::size_t{3}, std::size_t{4}}) {
        INFO(node_maps()[m].name);
        CHECK(allocations_of_later_steps<zeropp::host>(node_maps()[m]) == 0);
        CHECK(allocations_of_later_steps<zeropp::host_queue>(node_maps()[m]) == 0);
    }
}
