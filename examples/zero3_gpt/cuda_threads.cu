/// Ranks are threads that share one GPU, each with its own streams.

#include "cuda.hpp"
#include "cuda_device.cuh"

namespace zero3_gpt {

void require_cuda() { gpus_here(); }

std::vector<run_result> train_on_cuda_threads(const settings& s, const workload& work,
                                              const zeropp::three_level& nodes) {
    return train_on_threads<cuda_device>(s, work, nodes);
}

}  // namespace zero3_gpt
