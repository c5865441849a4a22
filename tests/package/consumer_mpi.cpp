#include <zeropp/mpi.hpp>
#include <zeropp/zeropp.hpp>

#include <mpi.h>

#include <cstdio>

static_assert(__cplusplus >= 202002L, "zeropp::mpi must ask for C++20");

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    int ranks = 0;
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    std::printf("%d rank\n", ranks);
    MPI_Finalize();
    return ranks == 1 ? 0 : 1;
}
