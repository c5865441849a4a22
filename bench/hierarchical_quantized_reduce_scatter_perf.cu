/// \file
/// hierarchical_quantized_reduce_scatter_perf -t nccl.

#include "hierarchical_quantized_reduce_scatter_perf.hpp"
#include "support/nccl_ranks.hpp"

#include <zeropp/cuda.cuh>

namespace zeropp_bench {

std::optional<gpu_work> work_on_gpus() { return on_nccl(hierarchical_quantized_reduce_scatter_perf::run<cuda_place>); }

}  // namespace zeropp_bench
