/// Collectives on one GPU by the emulated device's checks (tests/simt): lists, unequal nodes, all-reduces, updates,
/// all-to-alls and three levels between threads, directly and through `staged`.

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
