#include "cuda_mpi.hpp"

namespace zero3_gpt {

void require_cuda_for_mpi() {
    throw zeropp::error("--device cuda: this program was built without CUDA and NCCL (-DZEROPP_BUILD_GPU=ON builds it "
                        "with them)");
}

std::vector<run_result> train_on_cuda_mpi(const settings&, const workload&, zeropp::mpi_transport&,
                                          const zeropp::three_level&) {
    require_cuda_for_mpi();
    return {};
}

}  // namespace zero3_gpt
