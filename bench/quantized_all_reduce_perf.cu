/// \file
/// quantized_all_reduce_perf -t nccl.

#include "quantized_all_reduce_perf.hpp"
#include "support/nccl_ranks.hpp"

#include <zeropp/cuda.cuh>

namespace zeropp_bench {

std::optional<gpu_work> work_on_gpus() { return on_nccl(quantized_all_reduce_perf::run<cuda_place>); }

}  // namespace zeropp_bench
