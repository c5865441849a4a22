#pragma once
/// \file
/// The library with MPI. Link `zeropp::mpi`, or compile with mpicxx.

#include <zeropp/transport/mpi.hpp>
#include <zeropp/zeropp.hpp>
