#pragma once

#include "report.hpp"
#include "settings.hpp"
#include "trainer.hpp"

#include <vector>

namespace zero3_gpt {

/// Throws zeropp::error, in one line, if `--device cuda` cannot run: there is no GPU, or the program was built with
/// without_cuda.cpp in place of the .cu files.
void require_cuda();

/// Trains on the current GPU, which ranks share as threads.
std::vector<run_result> train_on_cuda_threads(const settings& s, const workload& work,
                                              const zeropp::three_level& nodes);

}  // namespace zero3_gpt
