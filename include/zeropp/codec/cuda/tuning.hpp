#pragma once
/// \file
/// What the kernels are tuned by, for each GPU generation. Constants only.

namespace zeropp::detail {

/// Threads of a block of every kernel.
inline constexpr int kernel_threads = 256;

struct kernel_tuning {
    /// 16-byte loads that each thread issues before it uses the first.
    int loads_in_flight;
    /// Thread blocks for each multiprocessor; kernels loop over what is left.
    int blocks_per_multiprocessor;
};

/// `compute_capability` is major * 10 + minor.
constexpr kernel_tuning tuning_for(int compute_capability) {
    if (compute_capability >= 90) return {.loads_in_flight = 4, .blocks_per_multiprocessor = 16};
    return {.loads_in_flight = 4, .blocks_per_multiprocessor = 8};
}

}  // namespace zeropp::detail
