/// \file
/// Ranks that are killed, and survivors that shrink and go on: MPI with user-level failure mitigation. A program of its
/// own, since mpirun has to keep it alive. Run 6 ranks with `mpirun --with-ft ulfm`. Rank 0 prints "passed" at the end.

#include <zeropp/mpi.hpp>
#include <zeropp/zeropp.hpp>

#include <mpi.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <vector>

namespace {

using clock = std::chrono::steady_clock;
using zeropp::mpi_transport;
using communicator = zeropp::communicator<zeropp::two_level, mpi_transport>;

constexpr std::chrono::milliseconds timeout(3000);
constexpr std::size_t elements = 300'007;

void require(bool holds, const std::string& expected) {
    if (!holds) throw zeropp::error("expected " + expected);
}

std::string text_of(const std::vector<int>& ranks) { return zeropp::detail::text_of(ranks); }

/// One all-gather of known weights. The memory stays, as the contract asks of memory that a failed operation has used.
void step(communicator& comm) {
    const zeropp::partition part(elements, comm.size());
    auto& shard = *new std::vector<float>(part.size(comm.rank()), 1.0f);
    auto& full = *new std::vector<float>(elements);
    zeropp::quantized_all_gather(zeropp::host{}, comm, zeropp::block_integer<8, 256>{}, shard, full);
    for (const float weight : full) require(weight == 1.0f, "weights of 1, given " + std::to_string(weight));
}

/// Steps until an error of a failed rank, and returns its text.
std::string steps(communicator& comm, int count) {
    try {
        for (int i = 0; i != count; ++i) step(comm);
    } catch (const zeropp::timeout_error& e) {
        return e.what();
    } catch (const zeropp::peer_error& e) {
        return e.what();
    }
    return {};
}

[[noreturn]] void die() {
    kill(getpid(), SIGKILL);
    std::abort();
}

void report(communicator& comm, const std::string& error, clock::time_point failed) {
    if (comm.rank() != 0) return;
    const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(clock::now() - failed);
    std::printf("%s\n%d ranks go on, %lld ms after the error\n", error.c_str(), comm.size(),
                static_cast<long long>(took.count()));
    std::fflush(stdout);
}

void run() {
    communicator comm(zeropp::two_level(3, 2), mpi_transport::duplicate(MPI_COMM_WORLD, {.timeout = timeout}));
    const int rank = comm.rank();
    require(steps(comm, 3).empty(), "steps without an error");
    // A whole node dies in the middle of a step.
    if (comm.group_id() == 1) die();
    std::string error = steps(comm, 1000000);
    auto failed = clock::now();
    auto [next, survivors] = comm.shrink();
    require(text_of(survivors) == "0, 1, 4, 5", "survivors 0, 1, 4, 5, given " + text_of(survivors));
    require(next.topology() == zeropp::two_level(2, 2), "two nodes of two ranks");
    require(steps(next, 3).empty(), "steps without an error");
    report(next, error, failed);
    // Another rank dies, and one more before the survivors have agreed.
    if (rank == 5) die();
    error = steps(next, 1000000);
    failed = clock::now();
    if (rank == 4) die();
    auto [last, of_next] = next.shrink();
    require(text_of(of_next) == "0, 1", "survivors 0, 1, given " + text_of(of_next));
    require(steps(last, 3).empty(), "steps without an error");
    report(last, error, failed);
    // A rank that is alive can be left out.
    try {
        auto [alone, of_last] = last.world().shrink(std::vector<int>(rank == 0 ? 1 : 0, 1));
        require(rank == 0 && alone.size() == 1, "rank 0 alone");
    } catch (const zeropp::excluded_error& e) {
        require(rank == 1, std::string("rank 0 to go on, given ") + e.what());
    }
    if (rank == 0) std::printf("passed\n");
}

}  // namespace

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    int status = 0;
    try {
        run();
    } catch (const std::exception& e) {
        std::fprintf(stderr, "error: %s\n", e.what());
        status = 1;
    }
    std::fflush(nullptr);
    // MPI_Finalize would wait for ranks that are gone.
    std::_Exit(status);
}
