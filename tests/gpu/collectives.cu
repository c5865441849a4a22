/// Whole collectives on one GPU, between ranks that are threads of this process.

#include "gpu/collectives.cuh"
#include "support/catch.hpp"
#include "support/on_threads.hpp"

#include <zeropp/transport/staged.hpp>

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace {

namespace gpu = zeropp_test::gpu;
using zeropp_test::expectations;

/// Joins the ranks on the GPU through what join(transport) makes of their threads' transport.
template <class T, class Join>
void check(const zeropp::two_level& ranks, std::size_t n, Join join) {
    const auto on_host = gpu::on_host_threads<T>(ranks, n);
    const std::string what = std::to_string(n) + " elements, " + std::to_string(ranks.groups()) + " x " +
                             std::to_string(ranks.group_size(0));
    zeropp_test::on_threads(ranks.size(), what, [&](zeropp::thread_transport& world, expectations& expect) {
        gpu::match_host<T>(ranks, join(world), n, on_host, expect);
    });
}

template <class Join>
void check_topologies(Join join) {
    for (const auto& [nodes, ranks_per_node] : {std::pair{1, 1}, {1, 4}, {4, 1}, {2, 2}, {3, 2}}) {
        for (const std::size_t n : {std::size_t{5}, std::size_t{40'003}}) {
            check<zeropp::bfloat16>(zeropp::two_level(nodes, ranks_per_node), n, join);
        }
        check<float>(zeropp::two_level(nodes, ranks_per_node), 40'003, join);
    }
    const std::vector<int> scattered{0, 1, 1, 2, 0, 2};
    check<zeropp::bfloat16>(zeropp::two_level(scattered), 40'003, join);
}

}  // namespace

TEST_CASE("collectives: thread ranks on one GPU", "[gpu][collectives]") {
    check_topologies([](const zeropp::thread_transport& world) { return world; });
}

TEST_CASE("collectives: thread ranks through host memory", "[gpu][collectives]") {
    check_topologies(
        [](const zeropp::thread_transport& world) { return zeropp::staged<zeropp::thread_transport>(world); });
}
