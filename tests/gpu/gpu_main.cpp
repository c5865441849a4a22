/// \file
/// main() of the GPU tests. Where there is no GPU they are skipped, which is not the same as passed.

#include "support/catch_session.hpp"

#include <cuda_runtime_api.h>

#include <cstdio>

int main(int argc, char** argv) {
    int devices = 0;
    const cudaError_t code = cudaGetDeviceCount(&devices);
    if (code != cudaSuccess || devices == 0) {
        std::printf("skipped: no GPU here (%s)\n", cudaGetErrorString(code));
        return 77;
    }
    // Catch2 ends with the number of failures, which could be 77.
    return zeropp_test::run_catch(argc, argv) == 0 ? 0 : 1;
}
