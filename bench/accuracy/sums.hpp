#pragma once
/// \file
/// What quantization does to sums over ranks.

#include "accuracy/samples.hpp"

#include <cstddef>
#include <string>
#include <vector>

namespace zeropp_bench {

/// The error of a whole reduce-scatter, of all ranks' slices together.
struct sum_accuracy {
    std::string inside;
    std::string across;
    /// With all ranks in one node, so that `inside` alone quantizes.
    double one_hop = 0;
    double two_hops = 0;
};

/// Every pair of quantizers on nodes x ranks_per_node ranks that are threads; each rank gets the sum of `slice`
/// elements.
std::vector<sum_accuracy> measure_sums(distribution d, int nodes, int ranks_per_node, std::size_t slice);

/// The error of an all-reduce with 16 bits on the wire, ||result - sum|| / ||sum||.
struct sixteen_bits_accuracy {
    int nodes = 0;
    int ranks_per_node = 0;
    /// In bfloat16 throughout, rounded after each addition, rank after rank, as a ring of a bfloat16 sum does it.
    double bfloat16_sum = 0;
    /// quantized_all_reduce with lossless<bfloat16> on every hop: sums in float.
    double float_sums = 0;
};

/// Every rank, of which each is a thread, contributes a bfloat16 tensor of `elements`.
sixteen_bits_accuracy measure_sixteen_bits(distribution d, int nodes, int ranks_per_node, std::size_t elements);

/// How far the sum over many steps is off.
struct feedback_accuracy {
    std::string format;
    std::string method;
    /// ||sum of results - sum of exact ones|| / ||sum of exact ones||, after one step and after all.
    double first_step = 0;
    double all_steps = 0;
    /// Of residuals, for each element of the gradient.
    double bytes_per_element = 0;
};

/// What of each step's gradient is fresh; the rest is the same in all steps.
inline constexpr float fresh_noise = 0.1f;

/// int4:128 and int4:128:h32 on both hops of 2 x 2 ranks that are threads: rounded to nearest, at random, and with
/// error feedback. Each rank's gradient is a tensor of its own with the distribution d, the same in all steps, plus in
/// every step fresh noise, about normal, of fresh_noise times that tensor's standard deviation.
std::vector<feedback_accuracy> measure_feedback(distribution d, int steps, std::size_t elements);

}  // namespace zeropp_bench
