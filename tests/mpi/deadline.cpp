#include <zeropp/transport/mpi.hpp>

#include "conformance/delivery_laws.hpp"
#include "conformance/transport_laws.hpp"
#include "support/catch.hpp"
#include "support/expectations.hpp"

#include <zeropp/execution/host.hpp>
#include <zeropp/execution/host_queue.hpp>
#include <zeropp/topology/two_level.hpp>
#include <zeropp/transport/communicator.hpp>

#include <mpi.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <numeric>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

// Ranks that stay away, come late, do something else or fail, and what all ranks get for it.

namespace {

using zeropp::host;
using zeropp::host_queue;
using zeropp::mpi_error;
using zeropp::mpi_transport;
using zeropp::peer_error;
using zeropp::precondition_error;
using zeropp::timeout_error;
using zeropp_test::expectations;
using zeropp_test::thrown;
using namespace std::chrono_literals;

constexpr std::chrono::milliseconds timeout = 200ms;
constexpr std::size_t piece = std::size_t{1} << 18;

/// Which calls to MPI fail: the definitions below take MPI's place.
struct planted_fault {
    int calls_until_irecv_fails = -1;
    int calls_until_test_fails = -1;
} fault;

int communicators_freed = 0;

bool fails_now(int& calls) { return calls >= 0 && calls-- == 0; }

/// Fails the test case where the time from here to the end of the scope is longer than an error may take.
class within_deadline_and_a_second {
public:
    ~within_deadline_and_a_second() { CHECK(std::chrono::steady_clock::now() - start_ < timeout + 1s); }

private:
    std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

/// Runs a test case on a world with a timeout. Every message's memory stays until the program ends, as the contract
/// asks of memory that a failed operation has worked on.
class ranks {
public:
    explicit ranks(std::chrono::milliseconds patience = timeout)
        : world(mpi_transport::duplicate(MPI_COMM_WORLD, {.timeout = patience})), last(world.size() - 1) {
        MPI_Barrier(MPI_COMM_WORLD);  // they begin together
    }
    /// They end together, so that no rank's messages are another test case's.
    ~ranks() { meet(); }
    ranks(const ranks&) = delete;
    ranks& operator=(const ranks&) = delete;

    static void meet() { MPI_Barrier(MPI_COMM_WORLD); }

    bool is_last() const { return world.rank() == last; }

    void gather(mpi_transport& transport, std::size_t bytes) {
        auto [send, received] = memory(transport, bytes);
        zeropp_test::message(transport.rank(), zeropp_test::to_all).write(send, bytes);
        transport.all_gather(host(), send, received, bytes);
        for (int r = 0; r != transport.size(); ++r) {
            CHECK(zeropp_test::message(r, zeropp_test::to_all).is_at(received + zeropp_test::place(r, bytes), bytes));
        }
    }
    void gather(std::size_t bytes) { gather(world, bytes); }
    void exchange(std::size_t bytes) {
        auto [send, received] = memory(world, bytes);
        world.all_to_all(host(), send, received, bytes);
    }

    /// For `size` bytes from each rank to each.
    static std::pair<std::byte*, std::byte*> memory(const mpi_transport& transport, std::size_t bytes) {
        static std::vector<std::vector<std::byte>> kept;
        const std::size_t all = static_cast<std::size_t>(transport.size()) * bytes;
        kept.emplace_back(2 * all);
        return {kept.back().data(), kept.back().data() + all};
    }

    /// What a rank that misses the last one says.
    std::string missing_the_last(const std::string& what) const {
        return "mpi_transport: timeout of 200 ms in " + what + ": not heard from rank " + std::to_string(last);
    }

    mpi_transport world;
    int last;
};

std::string gather_of(std::size_t bytes) { return "call 1, all_gather of " + std::to_string(bytes) + " bytes"; }

int world_size() {
    int size = 0;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    return size;
}

std::vector<int> everyone(int size) {
    std::vector<int> all(static_cast<std::size_t>(size));
    std::iota(all.begin(), all.end(), 0);
    return all;
}

}  // namespace

// MPI's own entry points are also called PMPI_: those that are called MPI_ may be replaced.

extern "C" int MPI_Irecv(void* to, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm,
                         MPI_Request* request) {
    if (fails_now(fault.calls_until_irecv_fails)) return MPI_ERR_NO_MEM;
    return PMPI_Irecv(to, count, type, from, tag, comm, request);
}

extern "C" int MPI_Test(MPI_Request* request, int* completed, MPI_Status* status) {
    if (fails_now(fault.calls_until_test_fails)) return MPI_ERR_OTHER;
    return PMPI_Test(request, completed, status);
}

extern "C" int MPI_Comm_free(MPI_Comm* comm) {
    ++communicators_freed;
    return PMPI_Comm_free(comm);
}

TEST_CASE("mpi_transport with a timeout obeys the laws of transports", "[mpi][deadline]") {
    expectations expect;
    {
        mpi_transport world = mpi_transport::duplicate(MPI_COMM_WORLD, {.timeout = 60s});
        zeropp_test::transport_laws(world, expect);
    }
    CHECK(expect.unmet() == "");
}

TEST_CASE("mpi_transport refuses timeouts below zero", "[mpi][deadline]") {
    const std::string error = "mpi_transport: expected a timeout of 0 ms, which is none, or more, given -1 ms";
    CHECK(thrown<precondition_error>([] { mpi_transport::duplicate(MPI_COMM_WORLD, {.timeout = -1ms}); }) == error);
    CHECK(thrown<precondition_error>([] { mpi_transport::borrow(MPI_COMM_WORLD, {.timeout = -1ms}); }) == error);
}

TEST_CASE("mpi_transport: a rank that stays away is named, and is told when it comes", "[mpi][deadline]") {
    if (world_size() == 1) return;
    for (const std::size_t bytes : {std::size_t{0}, std::size_t{16}, piece}) {
        ranks all;
        const std::string expected = all.missing_the_last(gather_of(bytes));
        if (!all.is_last()) {
            const within_deadline_and_a_second limit;
            CHECK(thrown<timeout_error>([&] { all.gather(bytes); }) == expected);
            CHECK(thrown<timeout_error>([&] { all.exchange(bytes); }) == expected);
            CHECK(thrown<timeout_error>([&] { all.world.split(everyone(all.world.size())); }) == expected);
        }
        ranks::meet();
        if (all.is_last()) {
            const within_deadline_and_a_second limit;
            // Messages that MPI had taken from the others before they gave up are whole, and so is what they make.
            if (bytes <= 16) all.gather(bytes);
            CHECK(thrown<timeout_error>([&] { all.gather(bytes); }) == expected);
        }
    }
}

// What a rank sends is read from its memory when the receiver comes.
TEST_CASE("mpi_transport: a late rank does not take what it finds for data", "[mpi][deadline]") {
    if (world_size() == 1) return;
    ranks all;
    constexpr std::size_t bytes = 2 * piece;
    auto [send, received] = ranks::memory(all.world, bytes);
    const auto gather = [&, out = send, in = received] { all.world.all_gather(host(), out, in, bytes); };
    if (all.is_last()) {
        std::this_thread::sleep_for(2 * timeout);
        CHECK(thrown<timeout_error>(gather) == all.missing_the_last(gather_of(bytes)));
    } else {
        CHECK(thrown<timeout_error>(gather) == all.missing_the_last(gather_of(bytes)));
        std::fill_n(send, bytes, std::byte{0xee});
    }
}

TEST_CASE("mpi_transport: a rank that is stopped is named by all others", "[mpi][deadline]") {
    if (world_size() == 1) return;
    ranks all;
    std::vector<pid_t> processes(static_cast<std::size_t>(all.world.size()));
    const pid_t own = getpid();
    MPI_Allgather(&own, sizeof(own), MPI_BYTE, processes.data(), sizeof(own), MPI_BYTE, MPI_COMM_WORLD);
    const auto gather_for_ever = [&] {
        for (;;) all.gather(19 * piece);
    };
    if (all.world.rank() == 0) kill(processes.back(), SIGSTOP);
    if (all.is_last()) {
        // Rank 0 has failed when it wakes this one, whose own deadline may be over too.
        CHECK_THROWS_AS(gather_for_ever(), timeout_error);
        return;
    }
    const std::string error = thrown<timeout_error>(gather_for_ever);
    INFO(error);
    CHECK(error.rfind(std::to_string(all.last)) == error.size() - 1);
    if (all.world.rank() == 0) kill(processes.back(), SIGCONT);
}

TEST_CASE("mpi_transport: ranks that do different things all get an error within the timeout", "[mpi][deadline]") {
    if (world_size() == 1) return;
    const auto differing = [](auto usual, auto odd) {
        ranks all;
        const within_deadline_and_a_second limit;
        const std::string error = thrown<zeropp::error>([&] {
            if (all.is_last()) {
                odd(all);
            } else {
                usual(all);
            }
            all.gather(8);
        });
        INFO(error);
        CHECK(error.rfind("mpi_transport: ", 0) == 0);
        CHECK(thrown<zeropp::error>([&] { all.gather(8); }) == error);
        return error;
    };
    const std::string last = std::to_string(world_size() - 1);
    // All data is there: the words say what is wrong, on the rank that reads one first.
    const std::string error = differing([](ranks& r) { r.gather(16); }, [](ranks& r) { r.exchange(16); });
    CHECK(error.find("expected the same operation on every rank, given ") != std::string::npos);
    CHECK(error.find("call 1, all_to_all of 16 bytes on rank " + last) != std::string::npos);
    differing([](ranks& r) { r.gather(16); }, [](ranks& r) { r.gather(0); });
    differing([](ranks& r) { r.gather(16); }, [](ranks& r) { r.gather(8); });
    differing([](ranks& r) { r.gather(3 * piece); }, [](ranks& r) { r.gather(piece); });
    differing([](ranks& r) { r.gather(3 * piece); }, [](ranks& r) { r.exchange(30 * piece); });
    differing([](ranks& r) { r.gather(16); }, [](ranks& r) { r.world.split(everyone(r.world.size())); });
    differing([](ranks& r) { r.gather(16); }, [](ranks&) {});
    // Of the same size, but of different collectives.
    const std::string calls = differing(
        [](ranks& r) {
            zeropp::begin_collective(r.world, {"quantized_all_gather", 1, "fp32", "int8", {}}, "");
            r.gather(16);
        },
        [](ranks& r) {
            zeropp::begin_collective(r.world, {"quantized_update", 1, "fp32", "int8", {}}, "");
            r.gather(16);
        });
    CHECK(calls.find("call 1, all_gather of 16 bytes in quantized_all_gather on rank ") != std::string::npos);
    CHECK(calls.find("call 1, all_gather of 16 bytes in quantized_update on rank " + last) != std::string::npos);
}

TEST_CASE("mpi_transport: a split that a rank does not come to", "[mpi][deadline]") {
    if (world_size() == 1) return;
    ranks all;
    const within_deadline_and_a_second limit;
    if (!all.is_last()) {
        CHECK(thrown<timeout_error>([&] { all.world.split(everyone(all.world.size())); }) ==
              all.missing_the_last("call 1, split"));
    }
}

TEST_CASE("mpi_transport: a duplicate that a rank does not come to", "[mpi][deadline]") {
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (world_size() == 1) return;
    // Of its own: the duplicate that is never made stays with the communicator.
    MPI_Comm comm = MPI_COMM_NULL;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    if (rank != 0) {
        const within_deadline_and_a_second limit;
        CHECK(thrown<timeout_error>([&] { mpi_transport::duplicate(comm, {.timeout = timeout}); }) ==
              "mpi_transport: timeout of 200 ms in MPI_Comm_idup: not heard from all ranks");
    }
    ranks::meet();
    // MPI completes the duplicate, which nobody has any more.
    if (rank == 0) mpi_transport::duplicate(comm, {.timeout = timeout});
}

TEST_CASE("mpi_transport: errors in splits name the collective, its number, and ranks of the world",
          "[mpi][deadline]") {
    if (world_size() < 4 || world_size() % 2 != 0) return;
    ranks all;
    const int nodes = world_size() / 2;
    zeropp::communicator comm(zeropp::two_level(nodes, 2), std::move(all.world));
    for (int i = 0; i != 3; ++i) zeropp::begin_collective(comm.world(), {"first", 1, "fp32", "int8", {}}, "");
    zeropp::begin_collective(comm.peers(0), {"of the group", 1, "fp32", "int8", {}}, "");
    zeropp::begin_collective(comm.world(), {"second", 1, "fp32", "int8", {}}, "");
    if (comm.rank() == all.last) return;
    const within_deadline_and_a_second limit;
    const bool misses = comm.index() == 1;
    const std::string expected = "mpi_transport: timeout of 200 ms in call 4, all_gather of 16 bytes in second: "
                                 "not heard from rank " +
                                 std::to_string(all.last);
    CHECK(thrown<timeout_error>([&] { all.gather(comm.peers(1), 16); }) ==
          (misses ? expected : std::string("<nothing thrown>")));
    // All that are split from one another refuse to work where one has failed.
    if (misses) {
        CHECK(thrown<timeout_error>([&] { all.gather(comm.world(), 16); }) == expected);
        CHECK(thrown<timeout_error>([&] { all.gather(comm.peers(0), 16); }) == expected);
    } else {
        // Rank 1, which fails at about the same time, may not have said so.
        const std::string error = thrown<zeropp::error>([&] { all.gather(comm.world(), 16); });
        INFO(error);
        CHECK(error.rfind(std::to_string(all.last)) == error.size() - 1);
    }
}

TEST_CASE("mpi_transport: a timeout on a queue comes out of wait, and destruction does not block", "[mpi][deadline]") {
    if (world_size() == 1) return;
    ranks all;
    std::optional<mpi_transport> world(std::move(all.world));
    if (world->rank() != all.last) {
        const within_deadline_and_a_second limit;
        auto [send, received] = ranks::memory(*world, 10 * piece);
        {
            const host_queue queue;
            world->all_gather(queue, send, received, 10 * piece);
            world->all_to_all(queue, send, received, piece);
            const std::string error = thrown<timeout_error>([&] { queue.wait(); });
            INFO(error);
            CHECK(error.rfind(std::to_string(all.last)) == error.size() - 1);
            world->all_to_all(queue, send, received, piece);
            CHECK(thrown<timeout_error>([&] { queue.wait(); }) == error);
            // Not collected: the queue ends all the same.
            world->all_gather(queue, send, received, 1);
        }
        // Collective, so that it may block.
        const int freed = communicators_freed;
        world.reset();
        CHECK(communicators_freed == freed);
    }
}

TEST_CASE("mpi_transport: an error of MPI's on one rank is an error on all", "[mpi][deadline]") {
    if (world_size() == 1) return;
    const auto fails_on_the_last = [](int planted_fault::* calls, int until, const std::string& call) {
        // The error is to come before the deadline, and 30 MB go to each rank until it does: slow machines take a
        // while.
        ranks all(20 * timeout);
        const within_deadline_and_a_second limit;
        if (all.is_last()) fault.*calls = until;
        const std::string error = thrown<zeropp::error>([&] { all.gather(19 * piece); });
        const bool own = all.is_last();
        CHECK(error.rfind(own ? call : "mpi_transport: rank " + std::to_string(all.last) + " failed: " + call, 0) == 0);
        CHECK((own ? thrown<mpi_error>([&] { all.gather(8); }) : thrown<peer_error>([&] { all.gather(8); })) == error);
        fault = {};
    };
    for (const int until : {0, 1, 2 * world_size()}) {
        fails_on_the_last(&planted_fault::calls_until_irecv_fails, until, "MPI_Irecv: ");
        fails_on_the_last(&planted_fault::calls_until_test_fails, until, "MPI_Test: ");
    }
}

// Without a timeout, too: what is in flight when a call fails still uses the caller's memory.
TEST_CASE("mpi_transport: a receive that cannot begin takes back those that have", "[mpi][deadline]") {
    if (world_size() == 1) return;
    constexpr std::size_t bytes = 3 * piece;
    mpi_transport world = mpi_transport::duplicate(MPI_COMM_WORLD);
    std::vector<std::byte> received(static_cast<std::size_t>(world.size()) * bytes, std::byte{7});
    const std::vector<std::byte> send(bytes, std::byte{1});
    if (world.rank() == 0) {
        fault.calls_until_irecv_fails = world.size();
        std::string error;
        {
            const within_deadline_and_a_second limit;
            error = thrown<mpi_error>([&] { world.all_gather(host(), send.data(), received.data(), bytes); });
            CHECK(error.rfind("MPI_Irecv: ", 0) == 0);
        }
        std::fill(received.begin(), received.end(), std::byte{9});
        ranks::meet();
        // The others' messages come now, to nobody.
        MPI_Request request = MPI_REQUEST_NULL;
        int completed = 0;
        MPI_Ibarrier(MPI_COMM_WORLD, &request);
        while (completed == 0) MPI_Test(&request, &completed, MPI_STATUS_IGNORE);
        CHECK(std::count(received.begin(), received.end(), std::byte{9}) ==
              static_cast<std::ptrdiff_t>(received.size()));
        CHECK(thrown<mpi_error>([&] { world.all_gather(host(), send.data(), received.data(), bytes); }) == error);
        fault = {};
    } else {
        ranks::meet();
        // What the others can do without a timeout is to wait; here they send as the operation would.
        MPI_Request sent = MPI_REQUEST_NULL;
        const std::size_t pieces = 3;
        MPI_Isend(send.data(), static_cast<int>(piece), MPI_BYTE, 0, static_cast<int>(pieces), world.native(), &sent);
        MPI_Request request = MPI_REQUEST_NULL;
        int completed = 0;
        MPI_Ibarrier(MPI_COMM_WORLD, &request);
        while (completed == 0) MPI_Test(&request, &completed, MPI_STATUS_IGNORE);
        MPI_Cancel(&sent);
        MPI_Request_free(&sent);
    }
}
