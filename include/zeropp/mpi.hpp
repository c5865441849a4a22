#pragma once
/// \file
/// The library with MPI: link `zeropp::mpi`, or compile with mpicxx.

#include <zeropp/transport/mpi.hpp>
#include <zeropp/zeropp.hpp>
