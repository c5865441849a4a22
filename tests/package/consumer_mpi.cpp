#include "gathers_right.hpp"

#include <zeropp/transport/mpi.hpp>

#include <mpi.h>

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    const bool right = gathers_right(zeropp::mpi_transport::duplicate(MPI_COMM_WORLD));
    MPI_Finalize();
    return right ? 0 : 1;
}
