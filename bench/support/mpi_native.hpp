#pragma once
/// \file
/// MPI's own collectives as opponents: each call uses the fastest algorithm of the MPI library.

#include "support/ranks.hpp"

#include <zeropp/mpi.hpp>

#include <memory>

namespace zeropp_bench {

/// Asks Open MPI to let a program choose algorithms. Call it before MPI_Init. Other MPIs ignore it.
void let_algorithms_be_chosen();

/// MPI's collectives over the ranks of `transport`. Collective.
///
/// The first call of each collective, format and count tries every algorithm that Open MPI offers: its own choice, the
/// algorithms of its component `tuned`, and its hierarchical component `han`. The fastest on the slowest rank serves
/// later calls. On another MPI its own choice is the only one.
std::shared_ptr<native_collectives> mpi_native(zeropp::mpi_transport transport);

}  // namespace zeropp_bench
