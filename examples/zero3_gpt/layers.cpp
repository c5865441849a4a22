#include "layers.hpp"

#include <cblas.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <limits>

#include "model.hpp"

namespace zero3_gpt {
namespace {

constexpr int lanes = 16;

/// Sums term(0) + ... + term(count - 1) in a fixed order that the compiler can vectorise.
template <class Term>
float lane_sum(int count, Term term) {
    float partial[lanes] = {};
    int i = 0;
    for (; i + lanes <= count; i += lanes) {
        for (int lane = 0; lane < lanes; ++lane) partial[lane] += term(i + lane);
    }
    for (int lane = 0; i + lane < count; ++lane) partial[lane] += term(i + lane);
    for (int half = lanes / 2; half > 0; half /= 2) {
        for (int lane = 0; lane < half; ++lane) partial[lane] += partial[lane + half];
    }
    return partial[0];
}

/// Floats as integers in the same order; its own inverse. Integer comparisons vectorise where floating-point ones,
/// which may trap, do not.
std::int32_t ordered(std::int32_t bits) noexcept {
    return bits ^ (bits < 0 ? std::numeric_limits<std::int32_t>::max() : 0);
}

float largest_of(int count, const float* x) noexcept {
    std::int32_t largest = std::numeric_limits<std::int32_t>::min();
    for (int i = 0; i < count; ++i) largest = std::max(largest, ordered(std::bit_cast<std::int32_t>(x[i])));
    return std::bit_cast<float>(ordered(largest));
}

/// x[i] = e^(scale (x[i] - largest)); returns the sum.
float exponentials(int count, float scale, float largest, float* x) noexcept {
    for (int i = 0; i < count; ++i) x[i] = falling_exp(scale * (x[i] - largest));
    return lane_sum(count, [x](int i) { return x[i]; });
}

void scale_row(int count, float factor, float* x) noexcept {
    for (int i = 0; i < count; ++i) x[i] *= factor;
}

float* row_of(float* matrix, int row, int width) noexcept { return matrix + std::ptrdiff_t{row} * width; }
const float* row_of(const float* matrix, int row, int width) noexcept { return matrix + std::ptrdiff_t{row} * width; }

}  // namespace

void pin_blas_to_one_thread() noexcept { openblas_set_num_threads(1); }

void project(projection size, const float* x, const float* weight, const float* bias, float* y) {
    if (bias != nullptr) {
        for (int row = 0; row < size.rows; ++row) std::copy_n(bias, size.out, row_of(y, row, size.out));
    }
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, size.rows, size.out, size.in, 1.0F, x, size.in, weight,
                size.out, bias != nullptr ? 1.0F : 0.0F, y, size.out);
}

void project_onto(projection size, const float* x, const float* weight, const float* bias, float* y) {
    for (int row = 0; row < size.rows; ++row) {
        float* out = row_of(y, row, size.out);
        for (int i = 0; i < size.out; ++i) out[i] += bias[i];
    }
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, size.rows, size.out, size.in, 1.0F, x, size.in, weight,
                size.out, 1.0F, y, size.out);
}

void project_backward(projection size, const float* x, const float* weight, const float* y_gradient, float* x_gradient,
                      float* weight_gradient, float* bias_gradient) {
    cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, size.in, size.out, size.rows, 1.0F, x, size.in, y_gradient,
                size.out, 0.0F, weight_gradient, size.out);
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, size.rows, size.in, size.out, 1.0F, y_gradient, size.out,
                weight, size.out, 0.0F, x_gradient, size.in);
    if (bias_gradient == nullptr) return;
    std::fill_n(bias_gradient, size.out, 0.0F);
    for (int row = 0; row < size.rows; ++row) {
        const float* gradient = row_of(y_gradient, row, size.out);
        for (int i = 0; i < size.out; ++i) bias_gradient[i] += gradient[i];
    }
}

void layer_norm(int rows, int width, const float* x, const float* gain, const float* bias, norm_activations kept) {
    constexpr float epsilon = 1e-5F;
    const float inverse_width = 1.0F / static_cast<float>(width);
    for (int row = 0; row < rows; ++row) {
        const float* in = row_of(x, row, width);
        float* normalised = row_of(kept.normalised, row, width);
        float* out = row_of(kept.output, row, width);
        const float mean = inverse_width * lane_sum(width, [in](int i) { return in[i]; });
        for (int i = 0; i < width; ++i) normalised[i] = in[i] - mean;
        const float variance =
            inverse_width * lane_sum(width, [normalised](int i) { return normalised[i] * normalised[i]; });
        const float inverse_deviation = 1.0F / std::sqrt(variance + epsilon);
        kept.inverse_deviation[row] = inverse_deviation;
        for (int i = 0; i < width; ++i) {
            normalised[i] *= inverse_deviation;
            out[i] = normalised[i] * gain[i] + bias[i];
        }
    }
}

void layer_norm_backward(int rows, int width, norm_activations kept, const float* gain, const float* y_gradient,
                         float* x_gradient, float* gain_gradient, float* bias_gradient) {
    const float inverse_width = 1.0F / static_cast<float>(width);
    std::fill_n(gain_gradient, width, 0.0F);
    std::fill_n(bias_gradient, width, 0.0F);
    for (int row = 0; row < rows; ++row) {
        const float* normalised = row_of(kept.normalised, row, width);
        const float* gradient = row_of(y_gradient, row, width);
        float* out = row_of(x_gradient, row, width);
        for (int i = 0; i < width; ++i) {
            gain_gradient[i] += gradient[i] * normalised[i];
            bias_gradient[i] += gradient[i];
        }
        // The mean and the deviation depend on every element of the row: take out the part of the gradient that would
        // only move them.
        const float mean = inverse_width * lane_sum(width, [=](int i) { return gradient[i] * gain[i]; });
        const float slope =
            inverse_width * lane_sum(width, [=](int i) { return gradient[i] * gain[i] * normalised[i]; });
        const float inverse_deviation = kept.inverse_deviation[row];
        for (int i = 0; i < width; ++i) {
            out[i] += inverse_deviation * (gradient[i] * gain[i] - mean - normalised[i] * slope);
        }
    }
}

void gelu(std::int64_t count, float* x, float* y) noexcept {
    constexpr float two_sqrt_two_over_pi = 1.59576912F;
    constexpr float cubic = 0.044715F;
    for (std::int64_t i = 0; i < count; ++i) {
        const float value = x[i];
        const float square = value * value;
        const float argument = two_sqrt_two_over_pi * value * (1.0F + cubic * square);
        // Both branches of the logistic function fall towards zero, so neither can overflow.
        const float fallen = falling_exp(argument);
        const float sigmoid = (std::bit_cast<std::int32_t>(argument) < 0 ? fallen : 1.0F) / (1.0F + fallen);
        const float argument_slope = two_sqrt_two_over_pi * (1.0F + 3.0F * cubic * square);
        y[i] = value * sigmoid;
        x[i] = sigmoid + value * sigmoid * (1.0F - sigmoid) * argument_slope;
    }
}

void attend(attention_head size, const float* qkv, float* probabilities, float* attended) {
    const auto [context, width, head_width] = size;
    const float* queries = qkv;
    const float* keys = qkv + width;
    const float* values = qkv + std::ptrdiff_t{2} * width;
    const float scale = 1.0F / std::sqrt(static_cast<float>(head_width));

    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, context, context, head_width, 1.0F, queries, 3 * width, keys,
                3 * width, 0.0F, probabilities, context);
    for (int row = 0; row < context; ++row) {
        float* scores = row_of(probabilities, row, context);
        const int visible = row + 1;
        const float sum = exponentials(visible, scale, largest_of(visible, scores), scores);
        scale_row(visible, 1.0F / sum, scores);
        std::fill(scores + visible, scores + context, 0.0F);
    }
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, context, head_width, context, 1.0F, probabilities, context,
                values, 3 * width, 0.0F, attended, width);
}

void attend_backward(attention_head size, const float* qkv, const float* probabilities, const float* attended_gradient,
                     float* qkv_gradient, float* scratch) {
    const auto [context, width, head_width] = size;
    const float* queries = qkv;
    const float* keys = qkv + width;
    const float* values = qkv + std::ptrdiff_t{2} * width;
    float* query_gradient = qkv_gradient;
    float* key_gradient = qkv_gradient + width;
    float* value_gradient = qkv_gradient + std::ptrdiff_t{2} * width;
    const float scale = 1.0F / std::sqrt(static_cast<float>(head_width));

    cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, context, head_width, context, 1.0F, probabilities, context,
                attended_gradient, width, 0.0F, value_gradient, 3 * width);
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, context, context, head_width, 1.0F, attended_gradient, width,
                values, 3 * width, 0.0F, scratch, context);
    for (int row = 0; row < context; ++row) {
        const float* probability = row_of(probabilities, row, context);
        float* gradient = row_of(scratch, row, context);
        const int visible = row + 1;
        const float mean = lane_sum(visible, [=](int i) { return probability[i] * gradient[i]; });
        for (int i = 0; i < visible; ++i) gradient[i] = probability[i] * (gradient[i] - mean);
        std::fill(gradient + visible, gradient + context, 0.0F);
    }
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, context, head_width, context, scale, scratch, context, keys,
                3 * width, 0.0F, query_gradient, 3 * width);
    cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, context, head_width, context, scale, scratch, context, queries,
                3 * width, 0.0F, key_gradient, 3 * width);
}

double cross_entropy(int rows, const std::uint8_t* targets, float* logits) {
    double sum = 0.0;
    for (int row = 0; row < rows; ++row) {
        float* logit = row_of(logits, row, vocabulary);
        const float shift = largest_of(vocabulary, logit);
        const float target = logit[targets[row]];
        const float total = exponentials(vocabulary, 1.0F, shift, logit);
        scale_row(vocabulary, 1.0F / total, logit);
        sum += std::log(static_cast<double>(total)) + static_cast<double>(shift) - static_cast<double>(target);
    }
    return sum;
}

void cross_entropy_backward(int rows, const std::uint8_t* targets, float* probabilities) noexcept {
    const float share = rows > 0 ? 1.0F / static_cast<float>(rows) : 0.0F;
    for (int row = 0; row < rows; ++row) {
        float* probability = row_of(probabilities, row, vocabulary);
        probability[targets[row]] -= 1.0F;
        scale_row(vocabulary, share, probability);
    }
}

}  // namespace zero3_gpt
