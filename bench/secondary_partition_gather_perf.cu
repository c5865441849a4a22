/// \file
/// secondary_partition_gather_perf -t nccl.

#include "secondary_partition_gather_perf.hpp"
#include "support/nccl_ranks.hpp"

#include <zeropp/cuda.cuh>

namespace zeropp_bench {

std::optional<gpu_work> work_on_gpus() { return on_nccl(secondary_partition_gather_perf::run<cuda_place>); }

}  // namespace zeropp_bench
