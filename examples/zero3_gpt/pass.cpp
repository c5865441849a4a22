#include "pass.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace zero3_gpt {
namespace {

std::size_t rows_of(const model_config& config, int windows) {
    return static_cast<std::size_t>(config.context) * static_cast<std::size_t>(windows);
}

int checked_batch(const model_config& config, int largest_batch) {
    const int limit = (1 << 30) / (config.context * std::max(4 * config.width, vocabulary)) + 1;
    if (largest_batch >= 1 && largest_batch <= limit) return largest_batch;
    throw std::invalid_argument("pass: largest_batch is " + std::to_string(largest_batch) + ", allowed are 1 to " +
                                std::to_string(limit));
}

}  // namespace

pass::norm_buffers::norm_buffers(std::size_t rows, std::size_t width)
    : normalised(rows * width), inverse_deviation(rows), output(rows * width) {}

norm_activations pass::norm_buffers::view() {
    return {.normalised = normalised.data(), .inverse_deviation = inverse_deviation.data(), .output = output.data()};
}

pass::block_buffers::block_buffers(const model_config& config, std::size_t windows)
    : norm1{windows * static_cast<std::size_t>(config.context), static_cast<std::size_t>(config.width)},
      qkv(norm1.output.size() * 3),
      probabilities(norm1.inverse_deviation.size() * static_cast<std::size_t>(config.heads) *
                    static_cast<std::size_t>(config.context)),
      attended(norm1.output.size()), norm2{norm1}, mlp_slope(norm1.output.size() * 4),
      mlp_hidden(norm1.output.size() * 4) {}

pass::pass(const model& network, int largest_batch)
    : model_{network}, largest_batch_{checked_batch(network.config(), largest_batch)},
      stream_(rows_of(network.config(), largest_batch) * static_cast<std::size_t>(network.config().width)),
      blocks_(static_cast<std::size_t>(network.config().layers),
              block_buffers{network.config(), static_cast<std::size_t>(largest_batch)}),
      final_norm_{rows_of(network.config(), largest_batch), static_cast<std::size_t>(network.config().width)},
      probabilities_(rows_of(network.config(), largest_batch) * vocabulary), stream_gradient_(stream_.size()),
      branch_gradient_(stream_.size()), wide_gradient_(stream_.size() * 4),
      attention_gradient_(rows_of(network.config(), network.config().context)) {}

void pass::begin(std::span<const std::uint8_t> tokens, std::span<const std::uint8_t> targets) {
    const auto context = static_cast<std::size_t>(model_.config().context);
    const auto most = rows_of(model_.config(), largest_batch_);
    if (tokens.size() % context != 0 || tokens.size() > most || targets.size() != tokens.size()) {
        throw std::invalid_argument("pass: given " + std::to_string(tokens.size()) + " tokens and " +
                                    std::to_string(targets.size()) + " targets, allowed are equal multiples of " +
                                    std::to_string(context) + " up to " + std::to_string(most));
    }
    tokens_ = tokens;
    targets_ = targets;
    rows_ = static_cast<int>(tokens.size());
    windows_ = static_cast<int>(tokens.size() / context);
    direction_ = direction::forward;
    next_unit_ = 0;
}

void pass::check_step(direction wanted, int unit, std::size_t weights, std::size_t gradient) const {
    const auto step_name = [](direction way, int which) {
        if (which < 0) return std::string{"begin"};
        return (way == direction::forward ? "forward of unit " : "backward of unit ") + std::to_string(which);
    };
    if (wanted != direction_ || unit != next_unit_) {
        throw std::logic_error("pass: expected " + step_name(direction_, next_unit_) + ", given " +
                               step_name(wanted, std::max(unit, 0)));
    }
    const std::size_t expected = model_.unit_parameters(unit);
    if (weights == expected && gradient == expected) return;
    throw std::invalid_argument("pass: unit " + std::to_string(unit) + " has " + std::to_string(expected) +
                                " parameters, given " + std::to_string(weights != expected ? weights : gradient) +
                                (weights != expected ? " weights" : " gradient elements"));
}

void pass::forward(int unit, std::span<const float> weights) {
    check_step(direction::forward, unit, weights.size(), weights.size());
    if (unit == 0) {
        embed(weights.data());
    } else if (unit == model_.head_unit()) {
        head_forward(weights.data());
    } else {
        block_forward(blocks_[static_cast<std::size_t>(unit - 1)], weights.data());
    }
    if (unit == model_.head_unit()) {
        direction_ = direction::backward;
    } else {
        ++next_unit_;
    }
}

float pass::loss() const {
    if (direction_ != direction::backward || next_unit_ != model_.head_unit()) {
        throw std::logic_error("pass: the loss is known between the last forward and the first backward");
    }
    return rows_ == 0 ? 0.0F : static_cast<float>(loss_sum_ / rows_);
}

void pass::backward(int unit, std::span<const float> weights, std::span<float> gradient) {
    check_step(direction::backward, unit, weights.size(), gradient.size());
    if (unit == 0) {
        embed_backward(gradient.data());
    } else if (unit == model_.head_unit()) {
        head_backward(weights.data(), gradient.data());
    } else {
        block_backward(blocks_[static_cast<std::size_t>(unit - 1)], weights.data(), gradient.data());
    }
    --next_unit_;
}

void pass::embed(const float* weights) {
    const auto& config = model_.config();
    const auto part = cut_embedding(config, weights);
    for (int row = 0; row < rows_; ++row) {
        const float* token = part.token + std::ptrdiff_t{tokens_[static_cast<std::size_t>(row)]} * config.width;
        const float* position = part.position + std::ptrdiff_t{row % config.context} * config.width;
        float* out = stream_.data() + std::ptrdiff_t{row} * config.width;
        for (int i = 0; i < config.width; ++i) out[i] = token[i] + position[i];
    }
}

void pass::embed_backward(float* gradient) {
    const auto& config = model_.config();
    const auto part = cut_embedding(config, gradient);
    std::fill_n(gradient, model_.unit_parameters(0), 0.0F);
    for (int row = 0; row < rows_; ++row) {
        float* token = part.token + std::ptrdiff_t{tokens_[static_cast<std::size_t>(row)]} * config.width;
        float* position = part.position + std::ptrdiff_t{row % config.context} * config.width;
        const float* in = stream_gradient_.data() + std::ptrdiff_t{row} * config.width;
        for (int i = 0; i < config.width; ++i) {
            token[i] += in[i];
            position[i] += in[i];
        }
    }
}

template <class Visit>
void pass::for_each_head(Visit visit) const {
    const auto& config = model_.config();
    const std::ptrdiff_t context = config.context;
    const std::ptrdiff_t head_width = config.width / config.heads;
    for (int window = 0; window < windows_; ++window) {
        for (int head = 0; head < config.heads; ++head) {
            const std::ptrdiff_t first_row = window * context;
            visit(first_row * 3 * config.width + head * head_width,
                  (std::ptrdiff_t{window} * config.heads + head) * context * context,
                  first_row * config.width + head * head_width);
        }
    }
}

void pass::block_forward(block_buffers& kept, const float* weights) {
    const auto& config = model_.config();
    const int width = config.width;
    const auto part = cut_block(config, weights);

    layer_norm(rows_, width, stream_.data(), part.norm1_gain, part.norm1_bias, kept.norm1.view());
    project({.rows = rows_, .in = width, .out = 3 * width}, kept.norm1.output.data(), part.qkv_weight, part.qkv_bias,
            kept.qkv.data());
    for_each_head([&](std::ptrdiff_t qkv, std::ptrdiff_t probabilities, std::ptrdiff_t attended) {
        attend({.context = config.context, .width = width, .head_width = width / config.heads}, kept.qkv.data() + qkv,
               kept.probabilities.data() + probabilities, kept.attended.data() + attended);
    });
    project_onto({.rows = rows_, .in = width, .out = width}, kept.attended.data(), part.attention_out_weight,
                 part.attention_out_bias, stream_.data());

    layer_norm(rows_, width, stream_.data(), part.norm2_gain, part.norm2_bias, kept.norm2.view());
    project({.rows = rows_, .in = width, .out = 4 * width}, kept.norm2.output.data(), part.mlp_in_weight,
            part.mlp_in_bias, kept.mlp_slope.data());
    gelu(std::int64_t{4} * rows_ * width, kept.mlp_slope.data(), kept.mlp_hidden.data());
    project_onto({.rows = rows_, .in = 4 * width, .out = width}, kept.mlp_hidden.data(), part.mlp_out_weight,
                 part.mlp_out_bias, stream_.data());
}

void pass::block_backward(block_buffers& kept, const float* weights, float* gradient) {
    const auto& config = model_.config();
    const int width = config.width;
    const auto part = cut_block(config, weights);
    const auto out = cut_block(config, gradient);
    float* stream = stream_gradient_.data();
    float* branch = branch_gradient_.data();
    float* wide = wide_gradient_.data();

    project_backward({.rows = rows_, .in = 4 * width, .out = width}, kept.mlp_hidden.data(), part.mlp_out_weight,
                     stream, wide, out.mlp_out_weight, out.mlp_out_bias);
    for (std::ptrdiff_t i = 0; i < std::ptrdiff_t{4} * rows_ * width; ++i) {
        wide[i] *= kept.mlp_slope[static_cast<std::size_t>(i)];
    }
    project_backward({.rows = rows_, .in = width, .out = 4 * width}, kept.norm2.output.data(), part.mlp_in_weight, wide,
                     branch, out.mlp_in_weight, out.mlp_in_bias);
    layer_norm_backward(rows_, width, kept.norm2.view(), part.norm2_gain, branch, stream, out.norm2_gain,
                        out.norm2_bias);

    project_backward({.rows = rows_, .in = width, .out = width}, kept.attended.data(), part.attention_out_weight,
                     stream, branch, out.attention_out_weight, out.attention_out_bias);
    for_each_head([&](std::ptrdiff_t qkv, std::ptrdiff_t probabilities, std::ptrdiff_t attended) {
        attend_backward({.context = config.context, .width = width, .head_width = width / config.heads},
                        kept.qkv.data() + qkv, kept.probabilities.data() + probabilities, branch + attended, wide + qkv,
                        attention_gradient_.data());
    });
    project_backward({.rows = rows_, .in = width, .out = 3 * width}, kept.norm1.output.data(), part.qkv_weight, wide,
                     branch, out.qkv_weight, out.qkv_bias);
    layer_norm_backward(rows_, width, kept.norm1.view(), part.norm1_gain, branch, stream, out.norm1_gain,
                        out.norm1_bias);
}

void pass::head_forward(const float* weights) {
    const int width = model_.config().width;
    const auto part = cut_head(model_.config(), weights);
    layer_norm(rows_, width, stream_.data(), part.norm_gain, part.norm_bias, final_norm_.view());
    project({.rows = rows_, .in = width, .out = vocabulary}, final_norm_.output.data(), part.weight, nullptr,
            probabilities_.data());
    loss_sum_ = cross_entropy(rows_, targets_.data(), probabilities_.data());
}

void pass::head_backward(const float* weights, float* gradient) {
    const int width = model_.config().width;
    const auto part = cut_head(model_.config(), weights);
    const auto out = cut_head(model_.config(), gradient);
    cross_entropy_backward(rows_, targets_.data(), probabilities_.data());
    project_backward({.rows = rows_, .in = width, .out = vocabulary}, final_norm_.output.data(), part.weight,
                     probabilities_.data(), branch_gradient_.data(), out.weight, nullptr);
    std::fill(stream_gradient_.begin(), stream_gradient_.end(), 0.0F);
    layer_norm_backward(rows_, width, final_norm_.view(), part.norm_gain, branch_gradient_.data(),
                        stream_gradient_.data(), out.norm_gain, out.norm_bias);
}

}  // namespace zero3_gpt
