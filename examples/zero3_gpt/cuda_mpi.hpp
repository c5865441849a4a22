#pragma once

#include "report.hpp"
#include "settings.hpp"
#include "trainer.hpp"

#include <zeropp/mpi.hpp>

#include <vector>

namespace zero3_gpt {

/// Throws zeropp::error, in one line, if `--device cuda` cannot run under MPI: this machine has no GPU, or the program
/// was built with mpi_without_cuda.cpp in place of cuda_mpi.cu.
void require_cuda_for_mpi();

/// Trains with one GPU for each rank, connected by NCCL. Collective; throws on every rank if a machine has fewer GPUs
/// than ranks.
std::vector<run_result> train_on_cuda_mpi(const settings& s, const workload& work, zeropp::mpi_transport& world,
                                          const zeropp::three_level& nodes);

}  // namespace zero3_gpt
