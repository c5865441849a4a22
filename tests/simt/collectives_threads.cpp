#include "simt/collectives.hpp"

namespace simt = zeropp_test::simt;

TEST_CASE("collectives on the device: gathers between threads", "[simt][collectives]") {
    simt::check_all_gathers(simt::own_transport());
}

TEST_CASE("collectives on the device: reduce-scatter between threads", "[simt][collectives]") {
    simt::check_reduce_scatters(simt::own_transport());
}
