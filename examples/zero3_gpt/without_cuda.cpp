#include "cuda.hpp"

namespace zero3_gpt {

void require_cuda() {
    throw zeropp::error("--device cuda: this program was built without CUDA (-DZEROPP_BUILD_GPU=ON builds it with)");
}

std::vector<run_result> train_on_cuda_threads(const settings&, const workload&, const zeropp::three_level&) {
    require_cuda();
    return {};
}

}  // namespace zero3_gpt
