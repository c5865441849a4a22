/// \file
/// Test cases that fail on one rank of three, to test the MPI test program itself.

#include "support/catch.hpp"

#include <mpi.h>

#include <chrono>
#include <stdexcept>
#include <thread>

namespace {

int my_rank() {
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    return rank;
}

}  // namespace

TEST_CASE("one rank fails") { CHECK(my_rank() != 1); }

TEST_CASE("one rank throws while the others wait") {
    if (my_rank() == 1) throw std::runtime_error("this rank has thrown");
    MPI_Barrier(MPI_COMM_WORLD);
}

TEST_CASE("one rank waits forever") {
    if (my_rank() == 1) std::this_thread::sleep_for(std::chrono::seconds(60));
}
