#pragma once
/// \file
/// Ranks with a GPU each, connected by NCCL.

#include "support/cuda_place.hpp"
#include "support/launch.hpp"

#include <functional>

namespace zeropp_bench {

/// Work that connects each rank to NCCL, on its GPU, and runs `work` on it.
gpu_work on_nccl(std::function<int(const options&, ranks_on<cuda_place>&)> work);

}  // namespace zeropp_bench
