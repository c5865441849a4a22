#pragma once

#include <bit>
#include <cstdint>
#include <limits>

/// The arithmetic of the transformer on plain arrays. Every matrix product is CBLAS; what is written out here is the
/// arithmetic on rows. A sum over a row runs in 16 fixed lanes, because a compiler may not reorder a plain float sum
/// and so could not vectorise it; the order of the additions does not depend on the vector width.
namespace zero3_gpt {

/// One BLAS thread per rank: ranks already fill the cores, and the order of the sums no longer depends on the load.
void pin_blas_to_one_thread() noexcept;

/// e^-|x|, to about 2e-7 relative up to |x| = 80 and e^-80 from there on (nothing a softmax or a logistic function
/// could notice); NaN for NaN. The polynomial is Cephes' expf. Unlike std::exp it vectorises; so that it does, the
/// limit is set with integer masks, because GCC keeps the branch of a comparison that may trap.
[[nodiscard]] inline float falling_exp(float x) noexcept {
    constexpr auto infinity = std::bit_cast<std::int32_t>(std::numeric_limits<float>::infinity());
    constexpr auto limit = std::bit_cast<std::int32_t>(80.0F);
    const std::int32_t bits = std::bit_cast<std::int32_t>(x) & std::numeric_limits<std::int32_t>::max();
    const std::int32_t beyond_limit = (limit - bits) >> 31;  // all ones, or zero
    const std::int32_t not_a_number = (infinity - bits) >> 31;
    x = -std::bit_cast<float>(bits ^ ((bits ^ limit) & beyond_limit & ~not_a_number));
    // Adding 1.5 * 2^23 leaves the nearest integer in the low bits of the significand.
    const float shifted = x * 1.44269504F + 12582912.0F;
    const float n = shifted - 12582912.0F;
    const float r = x - n * 0.693359375F + n * 2.12194440e-4F;  // ln 2 in two parts
    float p = 1.9875691500e-4F;
    p = p * r + 1.3981999507e-3F;
    p = p * r + 8.3334519073e-3F;
    p = p * r + 4.1665795894e-2F;
    p = p * r + 1.6666665459e-1F;
    p = p * r + 5.0000001201e-1F;
    p = p * r * r + r + 1.0F;
    return p * std::bit_cast<float>((std::bit_cast<std::uint32_t>(shifted) << 23U) + (127U << 23U));
}

/// A projection: x [rows, in] times weight [in, out] plus bias [out].
struct projection {
    int rows;
    int in;
    int out;
};

/// y = x w + bias; without a bias (nullptr) y = x w.
void project(projection size, const float* x, const float* weight, const float* bias, float* y);
/// y += x w + bias: the way back into the residual stream.
void project_onto(projection size, const float* x, const float* weight, const float* bias, float* y);
/// Overwrites all three gradients; x_gradient = y_gradient w^T. Without a bias, bias_gradient is nullptr.
void project_backward(projection size, const float* x, const float* weight, const float* y_gradient, float* x_gradient,
                      float* weight_gradient, float* bias_gradient);

/// What LayerNorm keeps for its backward pass.
struct norm_activations {
    float* normalised;         // [rows, width], before gain and bias
    float* inverse_deviation;  // [rows]
    float* output;             // [rows, width]
};

void layer_norm(int rows, int width, const float* x, const float* gain, const float* bias, norm_activations kept);
/// Adds to x_gradient (the residual stream's), overwrites gain_gradient and bias_gradient.
void layer_norm_backward(int rows, int width, norm_activations kept, const float* gain, const float* y_gradient,
                         float* x_gradient, float* gain_gradient, float* bias_gradient);

/// GELU in its tanh form, written as x * sigmoid(2u). Replaces `x` by the slope at x, all that backward needs.
void gelu(std::int64_t count, float* x, float* y) noexcept;

/// Causal attention of one head: `qkv` is [context, 3 width] and points at the head's first query, so that keys and
/// values lie width and 2 width further; `attended` is [context, width].
struct attention_head {
    int context;
    int width;
    int head_width;
};

/// `probabilities` [context, context] is kept for the backward pass.
void attend(attention_head size, const float* qkv, float* probabilities, float* attended);
/// Overwrites the head's part of qkv_gradient; `scratch` is [context, context].
void attend_backward(attention_head size, const float* qkv, const float* probabilities, const float* attended_gradient,
                     float* qkv_gradient, float* scratch);

/// Turns logits [rows, vocabulary] into probabilities; returns the cross-entropy summed over the rows, in nats.
[[nodiscard]] double cross_entropy(int rows, const std::uint8_t* targets, float* logits);
/// Turns those probabilities into the gradient of the mean cross-entropy.
void cross_entropy_backward(int rows, const std::uint8_t* targets, float* probabilities) noexcept;

}  // namespace zero3_gpt
