#pragma once

#include "device.hpp"
#include "model.hpp"

#include <zeropp/core/config.hpp>
#include <zeropp/core/math.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>

/// Arithmetic of the transformer on plain arrays of a device. The device's BLAS multiplies matrices. Arithmetic on rows
/// is function objects, which loops and kernels run.
namespace zero3_gpt {

/// e^-|x|, with a relative error of about 2e-7 up to |x| = 80, e^-80 beyond (for softmax and logistic functions as good
/// as 0), NaN for NaN. The polynomial is Cephes' expf. Unlike std::exp it vectorises. Integer masks set the limit,
/// because GCC keeps a branch for comparisons that may trap.
[[nodiscard]] ZEROPP_HOST_DEVICE inline float falling_exp(float x) noexcept {
    constexpr auto infinity = static_cast<std::int32_t>(zeropp::infinity_bits);
    constexpr auto limit = static_cast<std::int32_t>(zeropp::float_bits(80.0F));
    const auto bits = static_cast<std::int32_t>(zeropp::float_bits(x) & 0x7fffffffU);
    const std::int32_t beyond_limit = (limit - bits) >> 31;  // all ones, or zero
    const std::int32_t not_a_number = (infinity - bits) >> 31;
    x = -zeropp::bits_float(static_cast<std::uint32_t>(bits ^ ((bits ^ limit) & beyond_limit & ~not_a_number)));
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
    return p * zeropp::bits_float((zeropp::float_bits(shifted) << 23U) + (127U << 23U));
}

/// Values that LayerNorm keeps for its backward pass.
struct norm_activations {
    float* normalised;         // [rows, width], before gain and bias
    float* inverse_deviation;  // [rows]
    float* output;             // [rows, width]
};

/// Function objects that devices run.
namespace step {

template <class Float>
ZEROPP_HOST_DEVICE inline Float* row_of(Float* matrix, int row, int width) {
    return matrix + std::ptrdiff_t{row} * width;
}

/// Maps the bits of floats to integers in the same order, and back. Integer comparisons vectorise; floating-point ones
/// may trap and do not.
ZEROPP_HOST_DEVICE inline std::int32_t ordered(std::int32_t bits) { return bits ^ (bits < 0 ? 0x7fffffff : 0); }

template <class Team>
ZEROPP_HOST_DEVICE float largest_of(const Team& team, int count, const float* x) {
    const std::int32_t largest =
        team.largest(count, [x](int i) { return ordered(static_cast<std::int32_t>(zeropp::float_bits(x[i]))); });
    return zeropp::bits_float(static_cast<std::uint32_t>(ordered(largest)));
}

/// x[i] = e^(scale (x[i] - largest)); returns the sum.
template <class Team>
ZEROPP_HOST_DEVICE float exponentials(const Team& team, int count, float scale, float largest, float* x) {
    team.each(count, [=](int i) { x[i] = falling_exp(scale * (x[i] - largest)); });
    return team.sum(count, [x](int i) { return x[i]; });
}

template <class Team>
ZEROPP_HOST_DEVICE void scale_row(const Team& team, int count, float factor, float* x) {
    team.each(count, [=](int i) { x[i] *= factor; });
}

struct fill {
    float value;
    float* x;

    ZEROPP_HOST_DEVICE void operator()(std::int64_t i) const { x[i] = value; }
};

struct multiply_elements {
    const float* by;
    float* x;

    ZEROPP_HOST_DEVICE void operator()(std::int64_t i) const { x[i] *= by[i]; }
};

/// Sets every row of y to x.
struct copy_to_rows {
    int width;
    const float* x;
    float* y;

    template <class Team>
    ZEROPP_HOST_DEVICE void operator()(const Team& team, int row) const {
        const float* in = x;
        float* out = row_of(y, row, width);
        team.each(width, [=](int i) { out[i] = in[i]; });
    }
};

struct add_to_rows {
    int width;
    const float* x;
    float* y;

    template <class Team>
    ZEROPP_HOST_DEVICE void operator()(const Team& team, int row) const {
        const float* in = x;
        float* out = row_of(y, row, width);
        team.each(width, [=](int i) { out[i] += in[i]; });
    }
};

/// Adds the rows of x to `sum`.
struct add_rows {
    int width;
    const float* x;
    float* sum;

    ZEROPP_HOST_DEVICE void operator()(int row, int column) const { sum[column] += row_of(x, row, width)[column]; }
};

struct layer_norm {
    int width;
    const float* x;
    const float* gain;
    const float* bias;
    norm_activations kept;

    template <class Team>
    ZEROPP_HOST_DEVICE void operator()(const Team& team, int row) const {
        constexpr float epsilon = 1e-5F;
        const float inverse_width = 1.0F / static_cast<float>(width);
        const float* in = row_of(x, row, width);
        const float* gains = gain;
        const float* biases = bias;
        float* normalised = row_of(kept.normalised, row, width);
        float* out = row_of(kept.output, row, width);
        const float mean = inverse_width * team.sum(width, [in](int i) { return in[i]; });
        team.each(width, [=](int i) { normalised[i] = in[i] - mean; });
        const float variance =
            inverse_width * team.sum(width, [normalised](int i) { return normalised[i] * normalised[i]; });
        const float inverse_deviation = 1.0F / std::sqrt(variance + epsilon);
        float* kept_deviation = kept.inverse_deviation + row;
        team.at(0, [=] { *kept_deviation = inverse_deviation; });
        team.each(width, [=](int i) {
            normalised[i] *= inverse_deviation;
            out[i] = normalised[i] * gains[i] + biases[i];
        });
    }
};

struct layer_norm_backward {
    int width;
    norm_activations kept;
    const float* gain;
    const float* y_gradient;
    float* x_gradient;

    template <class Team>
    ZEROPP_HOST_DEVICE void operator()(const Team& team, int row) const {
        const float inverse_width = 1.0F / static_cast<float>(width);
        const float* normalised = row_of(kept.normalised, row, width);
        const float* gradient = row_of(y_gradient, row, width);
        const float* gains = gain;
        float* out = row_of(x_gradient, row, width);
        // Mean and deviation depend on every element of the row. Removes the part of the gradient that would only
        // change them.
        const float mean = inverse_width * team.sum(width, [=](int i) { return gradient[i] * gains[i]; });
        const float slope =
            inverse_width * team.sum(width, [=](int i) { return gradient[i] * gains[i] * normalised[i]; });
        const float inverse_deviation = kept.inverse_deviation[row];
        team.each(width, [=](int i) {
            out[i] += inverse_deviation * (gradient[i] * gains[i] - mean - normalised[i] * slope);
        });
    }
};

struct add_gain_gradient {
    int width;
    const float* normalised;
    const float* y_gradient;
    float* gain_gradient;

    ZEROPP_HOST_DEVICE void operator()(int row, int column) const {
        gain_gradient[column] += row_of(y_gradient, row, width)[column] * row_of(normalised, row, width)[column];
    }
};

struct gelu {
    float* x;
    float* y;

    ZEROPP_HOST_DEVICE void operator()(std::int64_t i) const {
        constexpr float two_sqrt_two_over_pi = 1.59576912F;
        constexpr float cubic = 0.044715F;
        const float value = x[i];
        const float square = value * value;
        const float argument = two_sqrt_two_over_pi * value * (1.0F + cubic * square);
        // Both branches of the logistic function use e^-|argument|, so neither overflows.
        const float fallen = falling_exp(argument);
        const bool negative = static_cast<std::int32_t>(zeropp::float_bits(argument)) < 0;
        const float sigmoid = (negative ? fallen : 1.0F) / (1.0F + fallen);
        const float argument_slope = two_sqrt_two_over_pi * (1.0F + 3.0F * cubic * square);
        y[i] = value * sigmoid;
        x[i] = sigmoid + value * sigmoid * (1.0F - sigmoid) * argument_slope;
    }
};

/// Turns scores into probabilities. A row sees itself and the earlier rows of its window.
struct causal_softmax {
    int context;
    float scale;
    float* scores;

    template <class Team>
    ZEROPP_HOST_DEVICE void operator()(const Team& team, int row) const {
        float* x = row_of(scores, row, context);
        const int visible = row % context + 1;
        const float sum = exponentials(team, visible, scale, largest_of(team, visible, x), x);
        scale_row(team, visible, 1.0F / sum, x);
        float* hidden = x;
        team.each(context, [=](int i) { hidden[i] = i < visible ? hidden[i] : 0.0F; });
    }
};

struct causal_softmax_backward {
    int context;
    const float* probabilities;
    float* gradients;  // in: of the probabilities; out: of the scores

    template <class Team>
    ZEROPP_HOST_DEVICE void operator()(const Team& team, int row) const {
        const float* probability = row_of(probabilities, row, context);
        float* gradient = row_of(gradients, row, context);
        const int visible = row % context + 1;
        const float mean = team.sum(visible, [=](int i) { return probability[i] * gradient[i]; });
        team.each(context, [=](int i) { gradient[i] = i < visible ? probability[i] * (gradient[i] - mean) : 0.0F; });
    }
};

/// Turns logits into probabilities, and stores each row's cross-entropy in nats.
struct cross_entropy {
    const std::uint8_t* targets;
    float* logits;
    double* losses;  // [rows]

    template <class Team>
    ZEROPP_HOST_DEVICE void operator()(const Team& team, int row) const {
        float* logit = row_of(logits, row, vocabulary);
        const int target = targets[row];
        double* loss = losses + row;
        // The lane that holds the target keeps its logit, because `exponentials` overwrites the logits.
        float of_target = 0.0F;
        team.at(target, [&of_target, logit, target] { of_target = logit[target]; });
        const float shift = largest_of(team, vocabulary, logit);
        const float total = exponentials(team, vocabulary, 1.0F, shift, logit);
        scale_row(team, vocabulary, 1.0F / total, logit);
        team.at(target, [=] {
            *loss = std::log(static_cast<double>(total)) + static_cast<double>(shift) - static_cast<double>(of_target);
        });
    }
};

/// Turns probabilities into the gradient of the mean cross-entropy.
struct cross_entropy_backward {
    float share;  // of one row in the mean
    const std::uint8_t* targets;
    float* probabilities;

    template <class Team>
    ZEROPP_HOST_DEVICE void operator()(const Team& team, int row) const {
        float* probability = row_of(probabilities, row, vocabulary);
        const int target = targets[row];
        team.at(target, [=] { probability[target] -= 1.0F; });
        scale_row(team, vocabulary, share, probability);
    }
};

/// Adds two embeddings: of the token, and of its position in the window.
struct embed {
    int width;
    int context;
    const std::uint8_t* tokens;
    embedding_parameters<const float> weights;
    float* stream;

    template <class Team>
    ZEROPP_HOST_DEVICE void operator()(const Team& team, int row) const {
        const float* token = row_of(weights.token, tokens[row], width);
        const float* position = row_of(weights.position, row % context, width);
        float* out = row_of(stream, row, width);
        team.each(width, [=](int i) { out[i] = token[i] + position[i]; });
    }
};

struct add_embedding_gradient {
    int width;
    int context;
    const std::uint8_t* tokens;
    const float* stream_gradient;
    embedding_parameters<float> gradient;

    ZEROPP_HOST_DEVICE void operator()(int row, int column) const {
        const float in = row_of(stream_gradient, row, width)[column];
        row_of(gradient.token, tokens[row], width)[column] += in;
        row_of(gradient.position, row % context, width)[column] += in;
    }
};

}  // namespace step

/// Sizes of a projection: x [rows, in] times weight [in, out], plus bias [out].
struct projection {
    int rows;
    int in;
    int out;
};

/// y = x w + bias, or y = x w if `bias` is nullptr.
template <class Device>
void project(const Device& device, projection size, const float* x, const float* weight, const float* bias, float* y) {
    if (bias != nullptr) device.for_each_row(size.rows, step::copy_to_rows{size.out, bias, y});
    device.multiply({.rows = size.rows, .columns = size.out, .inner = size.in, .keep = bias != nullptr ? 1.0F : 0.0F},
                    {.data = x, .stride = size.in}, {.data = weight, .stride = size.out},
                    {.data = y, .stride = size.out});
}

/// y += x w + bias, for y in the residual stream.
template <class Device>
void project_onto(const Device& device, projection size, const float* x, const float* weight, const float* bias,
                  float* y) {
    device.for_each_row(size.rows, step::add_to_rows{size.out, bias, y});
    device.multiply({.rows = size.rows, .columns = size.out, .inner = size.in, .keep = 1.0F},
                    {.data = x, .stride = size.in}, {.data = weight, .stride = size.out},
                    {.data = y, .stride = size.out});
}

/// Overwrites all three gradients; x_gradient = y_gradient w^T. `bias_gradient` is nullptr if there is no bias.
template <class Device>
void project_backward(const Device& device, projection size, const float* x, const float* weight,
                      const float* y_gradient, float* x_gradient, float* weight_gradient, float* bias_gradient) {
    device.multiply({.rows = size.in, .columns = size.out, .inner = size.rows},
                    {.data = x, .stride = size.in, .transposed = true}, {.data = y_gradient, .stride = size.out},
                    {.data = weight_gradient, .stride = size.out});
    device.multiply({.rows = size.rows, .columns = size.in, .inner = size.out},
                    {.data = y_gradient, .stride = size.out}, {.data = weight, .stride = size.out, .transposed = true},
                    {.data = x_gradient, .stride = size.in});
    if (bias_gradient == nullptr) return;
    device.for_each(size.out, step::fill{0.0F, bias_gradient});
    device.for_each_column(size.rows, size.out, step::add_rows{size.out, y_gradient, bias_gradient});
}

template <class Device>
void layer_norm(const Device& device, int rows, int width, const float* x, const float* gain, const float* bias,
                norm_activations kept) {
    device.for_each_row(rows, step::layer_norm{width, x, gain, bias, kept});
}

/// Adds to x_gradient, the residual stream's. Overwrites gain_gradient and bias_gradient.
template <class Device>
void layer_norm_backward(const Device& device, int rows, int width, norm_activations kept, const float* gain,
                         const float* y_gradient, float* x_gradient, float* gain_gradient, float* bias_gradient) {
    device.for_each(width, step::fill{0.0F, gain_gradient});
    device.for_each(width, step::fill{0.0F, bias_gradient});
    device.for_each_column(rows, width, step::add_gain_gradient{width, kept.normalised, y_gradient, gain_gradient});
    device.for_each_column(rows, width, step::add_rows{width, y_gradient, bias_gradient});
    device.for_each_row(rows, step::layer_norm_backward{width, kept, gain, y_gradient, x_gradient});
}

/// GELU in its tanh form, as x * sigmoid(2u). Replaces `x` by the slope at x, which the backward pass needs.
template <class Device>
void gelu(const Device& device, std::int64_t count, float* x, float* y) {
    device.for_each(count, step::gelu{x, y});
}

/// Sizes of causal attention of one head in all windows. `qkv` is [windows, context, 3 width] and begins at the head's
/// first query; keys and values are width and 2 width elements further. `attended` is [windows, context, width] and
/// begins at the head's first element. Probabilities are [windows, context, context].
struct attention_head {
    int windows;
    int context;
    int width;
    int head_width;

    [[nodiscard]] float scale() const { return 1.0F / std::sqrt(static_cast<float>(head_width)); }

    /// The head's queries (`third` = 0), keys (1) or values (2).
    [[nodiscard]] factor third_of(const float* qkv, int third, bool transposed = false) const {
        return {qkv + std::ptrdiff_t{third} * width, 3 * width, std::int64_t{3} * context * width, transposed};
    }
    [[nodiscard]] product third_of(float* qkv, int third) const {
        return {qkv + std::ptrdiff_t{third} * width, 3 * width, std::int64_t{3} * context * width};
    }
    [[nodiscard]] factor square(const float* probabilities, bool transposed = false) const {
        return {probabilities, context, std::int64_t{context} * context, transposed};
    }
    [[nodiscard]] product square(float* probabilities) const {
        return {probabilities, context, std::int64_t{context} * context};
    }
    /// Size of products that result in [context, context].
    [[nodiscard]] product_size to_square() const { return {context, context, head_width, windows}; }
    /// Size of products that sum over a window.
    [[nodiscard]] product_size over_window(float by) const { return {context, head_width, context, windows, by}; }
};

/// Keeps `probabilities` for the backward pass.
template <class Device>
void attend(const Device& device, attention_head size, const float* qkv, float* probabilities, float* attended) {
    device.multiply(size.to_square(), size.third_of(qkv, 0), size.third_of(qkv, 1, true), size.square(probabilities));
    device.for_each_row(size.windows * size.context, step::causal_softmax{size.context, size.scale(), probabilities});
    device.multiply(size.over_window(1.0F), size.square(static_cast<const float*>(probabilities)),
                    size.third_of(qkv, 2), {attended, size.width, std::int64_t{size.context} * size.width});
}

/// Overwrites the head's part of qkv_gradient; `scratch` is [windows, context, context].
template <class Device>
void attend_backward(const Device& device, attention_head size, const float* qkv, const float* probabilities,
                     const float* attended_gradient, float* qkv_gradient, float* scratch) {
    const factor gradient{attended_gradient, size.width, std::int64_t{size.context} * size.width};
    const float* score_gradient = scratch;
    device.multiply(size.over_window(1.0F), size.square(probabilities, true), gradient, size.third_of(qkv_gradient, 2));
    device.multiply(size.to_square(), gradient, size.third_of(qkv, 2, true), size.square(scratch));
    device.for_each_row(size.windows * size.context,
                        step::causal_softmax_backward{size.context, probabilities, scratch});
    device.multiply(size.over_window(size.scale()), size.square(score_gradient), size.third_of(qkv, 1),
                    size.third_of(qkv_gradient, 0));
    device.multiply(size.over_window(size.scale()), size.square(score_gradient, true), size.third_of(qkv, 0),
                    size.third_of(qkv_gradient, 1));
}

}  // namespace zero3_gpt
