// The smallest kernel. All of them are launched by `run`, which looks at the flags.
#include <zeropp/codec/cuda/launch.cuh>

struct nothing {
    static constexpr int resident_blocks = 1;
    __device__ void operator()() const {}
};

template __global__ void zeropp::detail::run<nothing>(const __grid_constant__ nothing);
