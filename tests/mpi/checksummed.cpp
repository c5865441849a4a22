#include "conformance/checksum_laws.hpp"
#include "conformance/delivery_laws.hpp"
#include "conformance/transport_laws.hpp"
#include "support/catch.hpp"
#include "support/expectations.hpp"

#include <zeropp/checksummed.hpp>
#include <zeropp/mpi.hpp>

#include <mpi.h>

#include <utility>

// Checksums where ranks are processes. Every rank runs every test; the program's main() adds them up.

namespace {

using namespace zeropp_test;
using zeropp::mpi_transport;

/// Runs work(transport, expect) and checks what this rank expected.
template <class Work>
void on_every_rank(Work work) {
    expectations expect;
    {
        mpi_transport world = mpi_transport::duplicate(MPI_COMM_WORLD);
        work(world, expect);
    }
    CHECK(expect.unmet() == "");
    CHECK(expect.met() > 0);
}

}  // namespace

TEST_CASE("checksummed over MPI obeys the laws of transports", "[mpi][transport][checksummed]") {
    on_every_rank([](mpi_transport& base, expectations& expect) {
        auto world = checksumming::wrap(std::move(base));
        transport_laws(world, expect);
    });
}

TEST_CASE("over MPI, a flipped bit is the same error on every rank", "[mpi][transport][checksummed]") {
    on_every_rank([](mpi_transport& base, expectations& expect) {
        gathers<zeropp::host>(base, expect, 1);  // one rank alone has no pairs
        if (base.size() > 3) return;
        names_source_and_destination<zeropp::host>(base, expect);
        names_source_and_destination<zeropp::host_queue>(base, expect);
    });
}
