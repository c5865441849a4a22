#include "conformance/decorators.hpp"
#include "conformance/delivery_laws.hpp"
#include "conformance/error_laws.hpp"
#include "conformance/split_laws.hpp"
#include "conformance/transport_laws.hpp"
#include "support/catch.hpp"
#include "support/expectations.hpp"

#include <zeropp/mpi.hpp>
#include <zeropp/topology/flat.hpp>
#include <zeropp/topology/two_level.hpp>
#include <zeropp/transport/mpi.hpp>

#include <mpi.h>

#include <cstddef>
#include <cstdlib>
#include <span>
#include <string>
#include <utility>
#include <vector>

// The laws of transports where ranks are processes. Every rank runs every test; the program's main() adds them up.

namespace {

using namespace zeropp_test;
using zeropp::mpi_transport;
using zeropp::two_level;

int world_size() {
    int size = 0;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    return size;
}

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

template <class Decorator>
void obeys_the_laws() {
    on_every_rank([](mpi_transport& base, expectations& expect) {
        auto world = Decorator::wrap(std::move(base));
        transport_laws(world, expect);
    });
}

/// Maps of as many ranks as there are.
std::vector<std::vector<int>> maps_of_the_world() {
    const std::vector<std::vector<int>> all{{0},
                                            {0, 0},
                                            {0, 1},
                                            {0, 0, 0},
                                            {0, 1, 2},
                                            {0, 0, 0, 0},
                                            {0, 0, 1, 1},
                                            {0, 1, 0, 1},
                                            {0, 1, 1, 0},
                                            {0, 1, 1, 1},
                                            {0, 1, 2, 3},
                                            {0, 1, 2, 0, 1, 2},
                                            {0, 0, 0, 1, 1, 1},
                                            {0, 0, 1, 1, 2, 2},
                                            {0, 0, 0, 1, 1, 2},
                                            {0, 1, 1, 2, 0, 2}};
    std::vector<std::vector<int>> fitting;
    for (const auto& map : all) {
        if (static_cast<int>(map.size()) == world_size()) fitting.push_back(map);
    }
    return fitting;
}

}  // namespace

TEST_CASE("mpi_transport obeys the laws of transports", "[mpi][transport]") { obeys_the_laws<plain>(); }

TEST_CASE("checked<counting> over MPI obeys the laws of transports", "[mpi][transport][checked]") {
    obeys_the_laws<both<checking, counted>>();
}

TEST_CASE("checked over MPI throws the same text on every rank where calls differ", "[mpi][transport][checked]") {
    on_every_rank([](mpi_transport& base, expectations& expect) {
        auto world = checking::wrap(std::move(base));
        compares_calls(world, expect);
        compares_calls_in_splits(world, expect);
    });
}

TEST_CASE("communicator over MPI connects groups and counterparts", "[mpi][transport][communicator]") {
    REQUIRE_FALSE(maps_of_the_world().empty());
    for (const std::vector<int>& map : maps_of_the_world()) {
        on_every_rank([&](mpi_transport& base, expectations& expect) {
            joins(two_level(std::span<const int>(map)), std::move(base), expect);
        });
    }
    on_every_rank([](mpi_transport& base, expectations& expect) {
        const zeropp::flat everyone(base.size());
        joins(everyone, std::move(base), expect);
    });
}

TEST_CASE("mpi_transport refuses to shrink without user-level failure mitigation, and goes on", "[mpi][shrink]") {
    on_every_rank([](mpi_transport& base, expectations& expect) {
        const std::string error = thrown<zeropp::precondition_error>([&] { base.shrink(); });
        expect(error == "mpi_transport: expected an MPI with user-level failure mitigation, as Open MPI 5, to shrink, "
                        "given one without" ||
                   error == "mpi_transport: expected mpirun --with-ft ulfm, to shrink, given a run without it",
               "a refusal, given " + error);
        gathers<zeropp::host>(base, expect, 9);
    });
}

// MPI counts in int; this is what lies beyond. 4.3 GiB on each of two ranks.
TEST_CASE("mpi_transport carries messages of more than 2^31 bytes", "[mpi][transport][large]") {
    const char* wanted = std::getenv("ZEROPP_TEST_LARGE");
    if (world_size() != 2 || wanted == nullptr || std::string(wanted) != "1") {
        WARN("skipped: needs 2 ranks, 9 GiB of memory and ZEROPP_TEST_LARGE=1");
        return;
    }
    on_every_rank([](mpi_transport& world, expectations& expect) {
        gathers_in_place<zeropp::host>(world, expect, (std::size_t{1} << 31) + (std::size_t{1} << 20) + 3);
    });
}
