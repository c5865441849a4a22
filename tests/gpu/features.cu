/// Collectives on one GPU between threads, directly and through `staged`: of single tensors, as in nccl.cu, and by the
/// emulated device's checks (tests/simt) of lists, unequal nodes, all-reduces, updates, all-to-alls and three levels.

#include "gpu/collectives.cuh"
#include "simt/collectives.hpp"
#include "support/catch.hpp"
#include "support/on_threads.hpp"

#include <zeropp/transport/staged.hpp>

#include <cstddef>
#include <string>

namespace gpu = zeropp_test::gpu;
namespace simt = zeropp_test::simt;

namespace {

template <class T>
void check_arrays(const simt::ranks_and_nodes& ranks, std::size_t n, const simt::make_transport& make) {
    const auto on_host = gpu::on_host_threads<T>(ranks.topology, n);
    zeropp_test::on_threads(ranks.topology.size(), std::to_string(n) + " elements on " + ranks.name,
                            [&](zeropp::thread_transport& world, zeropp_test::expectations& expect) {
                                gpu::match_host<T>(ranks.topology, make(world), n, on_host, expect);
                            });
}

void check_all(const simt::make_transport& make) {
    simt::check_all_gathers(make);
    simt::check_reduce_scatters(make);
    simt::check_all_reduces(make);
    simt::check_updates(make);
    for (const simt::ranks_and_nodes& ranks : simt::topologies()) {
        check_arrays<zeropp::bfloat16>(ranks, 5, make);
        check_arrays<zeropp::bfloat16>(ranks, 40'003, make);
        check_arrays<float>(ranks, 40'003, make);
    }
}

simt::any_transport threads(zeropp::thread_transport& world) { return simt::any_transport(world); }
simt::any_transport staged(zeropp::thread_transport& world) {
    return simt::any_transport(zeropp::staged<zeropp::thread_transport>(world));
}

}  // namespace

TEST_CASE("features: two and three levels, all-to-alls among them", "[gpu][slice]") {
    simt::check_levels(threads);
    simt::check_levels(staged);
}

TEST_CASE("features: collectives on all topologies, between threads", "[gpu]") { check_all(threads); }

TEST_CASE("features: collectives on all topologies, through host memory", "[gpu]") { check_all(staged); }
