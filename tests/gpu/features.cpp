/// Collectives on one GPU by the emulated device's checks (tests/simt): lists, unequal nodes, all-reduces and updates
/// between threads, directly and through `staged`.

#include "simt/collectives.hpp"
#include "support/catch.hpp"

#include <zeropp/transport/staged.hpp>

namespace simt = zeropp_test::simt;

namespace {

void check_all(const simt::make_transport& make) {
    simt::check_all_gathers(make);
    simt::check_reduce_scatters(make);
    simt::check_all_reduces(make);
    simt::check_updates(make);
}

}  // namespace

TEST_CASE("features: collectives on all topologies, between threads", "[gpu]") {
    check_all([](zeropp::thread_transport& world) { return simt::any_transport(world); });
}

TEST_CASE("features: collectives on all topologies, through host memory", "[gpu]") {
    check_all([](zeropp::thread_transport& world) {
        return simt::any_transport(zeropp::staged<zeropp::thread_transport>(world));
    });
}
