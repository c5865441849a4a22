/// \file
/// A program whose MPI serves one thread only: mpi_transport must work on host{} and refuse a host_queue, on which it
/// would call MPI from another thread. Exit status 0 when it does. A program of its own, since MPI starts only once.

#include <zeropp/mpi.hpp>
#include <zeropp/zeropp.hpp>

#include <mpi.h>

#include <cstddef>
#include <cstdio>
#include <string>
#include <vector>

namespace {

bool check(bool holds, const char* what) {
    if (!holds) std::fprintf(stderr, "expected %s\n", what);
    return holds;
}

template <class Operation>
std::string refusal(Operation operation) {
    try {
        operation();
    } catch (const zeropp::precondition_error& e) {
        return e.what();
    }
    return "nothing thrown";
}

bool run(int level) {
    zeropp::mpi_transport world = zeropp::mpi_transport::duplicate(MPI_COMM_WORLD);
    const auto size = static_cast<std::size_t>(world.size());
    const auto rank = static_cast<std::size_t>(world.rank());
    std::vector<std::byte> all(size);
    all[rank] = static_cast<std::byte>(rank + 1);
    bool passed = true;
    const auto gather_on = [&](const auto& exec, const char* expected) {
        world.all_gather(exec, &all[rank], all.data(), 1);
        for (std::size_t r = 0; r != size; ++r) passed &= check(all[r] == static_cast<std::byte>(r + 1), expected);
    };
    gather_on(zeropp::host(), "a gather on host{}");
    gather_on(zeropp::host_threads(2), "a gather on host_threads, which call MPI from the thread of the caller");

    const zeropp::host_queue queue;
    const std::string expected = "mpi_transport: expected MPI initialised with MPI_THREAD_MULTIPLE for an execution on "
                                 "another thread, given thread level " +
                                 std::to_string(level);
    std::vector<std::byte> send(size);
    const std::vector<std::byte> before = all;
    passed &= check(refusal([&] { world.all_gather(queue, send.data(), all.data(), 1); }) == expected,
                    "all_gather on a host_queue to be refused");
    passed &= check(refusal([&] { world.all_to_all(queue, send.data(), all.data(), 1); }) == expected,
                    "all_to_all on a host_queue to be refused");
    auto alone = world.split(std::vector<int>{world.rank()});
    passed &= check(refusal([&] { alone.all_gather(queue, send.data(), all.data(), 1); }) == expected,
                    "a split to refuse it too");
    queue.wait();
    passed &= check(all == before, "nothing to have been enqueued");
    return passed;
}

}  // namespace

int main(int argc, char** argv) {
    int level = MPI_THREAD_SINGLE;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level);
    // An MPI may serve more than it is asked for; then there is nothing to refuse.
    bool passed = true;
    if (level == MPI_THREAD_MULTIPLE) {
        std::puts("skipped: this MPI serves several threads though asked for one");
    } else {
        passed = run(level);
    }
    MPI_Finalize();
    return passed ? 0 : 1;
}
