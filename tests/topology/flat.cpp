#include <zeropp/topology/flat.hpp>

#include "conformance/topology_laws.hpp"
#include "support/catch.hpp"
#include "support/expectations.hpp"

using zeropp::flat;

TEST_CASE("flat obeys the laws of topologies", "[topology][flat]") {
    for (const int size : {1, 2, 3, 8, 17, 1000}) {
        INFO("size " << size);
        const flat t(size);
        CHECK(t.size() == size);
        CHECK(t.groups() == 1);
        zeropp_test::topology_laws(t);
    }
    CHECK(flat() == flat(1));
    CHECK(flat(2) != flat(3));
}

TEST_CASE("flat keeps the number of survivors", "[topology][flat]") {
    CHECK(zeropp::flat(5).shrink(std::vector<int>{0, 3, 4}) == zeropp::flat(3));
}

TEST_CASE("flat refuses to be empty", "[topology][flat]") {
    using zeropp_test::thrown;
    CHECK(thrown<zeropp::precondition_error>([] { flat(0); }) == "flat: expected at least 1 rank, given 0");
    CHECK(thrown<zeropp::precondition_error>([] { flat(-3); }) == "flat: expected at least 1 rank, given -3");
}
