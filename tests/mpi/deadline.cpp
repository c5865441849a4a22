#include <zeropp/transport/mpi.hpp>

#include "conformance/transport_laws.hpp"
#include "support/catch.hpp"
#include "support/expectations.hpp"

#include <zeropp/execution/host.hpp>
#include <zeropp/execution/host_queue.hpp>

#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

// Ranks that stay away, come late or do something else, and what the others get for it.

namespace {

using zeropp::host;
using zeropp::host_queue;
using zeropp::mpi_transport;
using zeropp::peer_error;
using zeropp::precondition_error;
using zeropp::timeout_error;
using zeropp_test::expectations;
using zeropp_test::gathers;
using zeropp_test::thrown;
using namespace std::chrono_literals;

constexpr std::chrono::milliseconds timeout = 100ms;
constexpr std::size_t piece = std::size_t{1} << 18;

/// Fails the test case where the time from here to the end of the scope is longer than an error may take.
class within_deadline_and_a_second {
public:
    ~within_deadline_and_a_second() { CHECK(std::chrono::steady_clock::now() - start_ < timeout + 1s); }

private:
    std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

/// Messages of one size. The memory outlives a failed operation, as it must, since MPI is done with it before the end of
/// the test case, when the ranks meet.
struct buffers {
    std::size_t bytes;
    std::vector<std::byte> send;
    std::vector<std::byte> received;

    buffers(const mpi_transport& transport, std::size_t b)
        : bytes(b), send(static_cast<std::size_t>(transport.size()) * b),
          received(static_cast<std::size_t>(transport.size()) * b) {}

    void gather(mpi_transport& transport) { transport.all_gather(host(), send.data(), received.data(), bytes); }
    void exchange(mpi_transport& transport) { transport.all_to_all(host(), send.data(), received.data(), bytes); }
};

}  // namespace

TEST_CASE("mpi_transport with a timeout obeys the laws of transports", "[mpi][deadline]") {
    expectations expect;
    {
        mpi_transport world = mpi_transport::duplicate(MPI_COMM_WORLD, {.timeout = 60s});
        zeropp_test::transport_laws(world, expect);
    }
    CHECK(expect.unmet() == "");
}

TEST_CASE("mpi_transport: a rank that stays away is named to all that wait for it", "[mpi][deadline]") {
    for (const std::size_t bytes : {std::size_t{0}, std::size_t{16}, piece, 19 * piece}) {
        mpi_transport world = mpi_transport::duplicate(MPI_COMM_WORLD, {.timeout = timeout});
        if (world.size() == 1) return;
        buffers memory(world, bytes);
        MPI_Barrier(MPI_COMM_WORLD);
        if (world.rank() != world.size() - 1) {
            const within_deadline_and_a_second limit;
            const std::string error = thrown<timeout_error>([&] { memory.gather(world); });
            CHECK(error == "mpi_transport: timeout of 100 ms in call 1, all_gather of " + std::to_string(bytes) +
                               " bytes: not heard from rank " + std::to_string(world.size() - 1));
            CHECK(thrown<timeout_error>([&] { memory.exchange(world); }) == error);
        }
        MPI_Barrier(MPI_COMM_WORLD);
    }
}
