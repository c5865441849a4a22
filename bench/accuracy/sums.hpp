#pragma once
/// \file
/// Errors of quantized sums over ranks.

#include "accuracy/samples.hpp"

#include <cstddef>
#include <string>
#include <vector>

namespace zeropp_bench {

/// Relative error of a reduce-scatter, over all ranks' shards.
struct sum_accuracy {
    std::string intra_node;
    std::string inter_node;
    /// All ranks in one node, so that only `intra_node` quantizes.
    double one_hop = 0;
    double two_hops = 0;
};

/// Measures each pair of quantizers on `nodes` x `ranks_per_node` ranks, which are threads. A shard has `slice`
/// elements.
std::vector<sum_accuracy> measure_sums(distribution d, int nodes, int ranks_per_node, std::size_t slice);

/// Error of an all-reduce with bf16 messages, ||result - sum|| / ||sum||.
struct sixteen_bits_accuracy {
    int nodes = 0;
    int ranks_per_node = 0;
    /// Added in rank order and rounded to bfloat16 after each addition, as a ring does.
    double bfloat16_sum = 0;
    /// By quantized_all_reduce with cast_to<bfloat16> on every hop: sums in float.
    double float_sums = 0;
};

/// Measures sums of a bfloat16 tensor of `elements` elements from each rank. Ranks are threads.
sixteen_bits_accuracy measure_sixteen_bits(distribution d, int nodes, int ranks_per_node, std::size_t elements);

/// Error of the sum over many steps.
struct feedback_accuracy {
    std::string format;
    std::string method;
    /// ||sum of results - exact sum|| / ||exact sum||, after the first step and after all.
    double first_step = 0;
    double all_steps = 0;
    /// Bytes of residuals for each element of the gradient.
    double bytes_per_element = 0;
};

/// Proportion of noise in a gradient that is new in each step; the rest is constant.
inline constexpr float fresh_noise = 0.1f;

/// Measures int4:128 and int4:128:h32 on both hops of 2 x 2 ranks, which are threads: nearest and stochastic rounding,
/// and error feedback. A rank's gradient is a constant tensor of distribution `d` plus new noise in each step. The
/// noise is about normal, with `fresh_noise` times the tensor's standard deviation.
std::vector<feedback_accuracy> measure_feedback(distribution d, int steps, std::size_t elements);

}  // namespace zeropp_bench
