#include "zero3_gpt/simt/cublas_doubles.hpp"

#include "simt/cuda_doubles.hpp"

#include <zeropp/codec/cuda/launch.cuh>

#include <cblas.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <utility>
#include <vector>

// cuBLAS's handle points to a type that only it defines; here, this.
struct cublasContext {
    cudaStream_t stream = nullptr;
};

namespace zeropp_test::simt {

namespace {

std::atomic<int> handles{0};
std::atomic<cublasStatus_t> next_status{CUBLAS_STATUS_SUCCESS};

/// A batch of matrices as BLAS sees them: columns of `rows` elements, `stride` elements apart.
struct matrices {
    const float* data;
    int rows;
    int columns;
    int stride;
    long long step;

    bool on_device(int batch) const {
        if (stride < rows) return false;
        const auto elements = std::size_t(stride) * std::size_t(columns - 1) + std::size_t(rows);
        std::vector<float> values(elements);
        try {
            for (int i = 0; i != batch; ++i) read_device(values.data(), data + i * step, elements * sizeof(float));
        } catch (const std::logic_error&) {
            return false;
        }
        return true;
    }
};

matrices factor_of(const float* data, cublasOperation_t operation, int rows, int columns, int stride, long long step) {
    if (operation == CUBLAS_OP_T) std::swap(rows, columns);
    return {data, rows, columns, stride, step};
}

CBLAS_TRANSPOSE transposition(cublasOperation_t operation) {
    return operation == CUBLAS_OP_T ? CblasTrans : CblasNoTrans;
}

}  // namespace

void fail_next_product(cublasStatus_t status) { next_status = status; }

int live_cublas_handles() { return handles; }

}  // namespace zeropp_test::simt

namespace simt = zeropp_test::simt;

cublasStatus_t cublasCreate_v2(cublasHandle_t* handle) {
    *handle = new cublasContext;
    ++simt::handles;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasDestroy_v2(cublasHandle_t handle) {
    delete handle;
    --simt::handles;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream) {
    handle->stream = stream;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSgemmStridedBatched(cublasHandle_t handle, cublasOperation_t a_operation,
                                         cublasOperation_t b_operation, int m, int n, int k, const float* alpha,
                                         const float* a, int a_stride, long long a_step, const float* b, int b_stride,
                                         long long b_step, const float* beta, float* c, int c_stride, long long c_step,
                                         int batch) {
    const cublasStatus_t status = simt::next_status.exchange(CUBLAS_STATUS_SUCCESS);
    if (status != CUBLAS_STATUS_SUCCESS) return status;
    if (m < 1 || n < 1 || k < 1 || batch < 1 ||
        !simt::factor_of(a, a_operation, m, k, a_stride, a_step).on_device(batch) ||
        !simt::factor_of(b, b_operation, k, n, b_stride, b_step).on_device(batch) ||
        !simt::matrices{c, m, n, c_stride, c_step}.on_device(batch)) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    zeropp::detail::emulate_launch(dim3(1), dim3(1), handle->stream, [=, scale = *alpha, keep = *beta] {
        for (int i = 0; i != batch; ++i) {
            cblas_sgemm(CblasColMajor, simt::transposition(a_operation), simt::transposition(b_operation), m, n, k,
                        scale, a + i * a_step, a_stride, b + i * b_step, b_stride, keep, c + i * c_step, c_stride);
        }
    });
    return CUBLAS_STATUS_SUCCESS;
}

const char* cublasGetStatusName(cublasStatus_t status) {
    return status == CUBLAS_STATUS_EXECUTION_FAILED ? "CUBLAS_STATUS_EXECUTION_FAILED" : "CUBLAS_STATUS_INVALID_VALUE";
}

const char* cublasGetStatusString(cublasStatus_t status) {
    return status == CUBLAS_STATUS_EXECUTION_FAILED ? "the function failed to launch on the GPU"
                                                    : "an unsupported value or parameter was passed";
}
