#pragma once

#include "device.hpp"
#include "layers.hpp"
#include "model.hpp"

#include <zeropp/core/view.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace zero3_gpt {

/// One micro-batch on its way through the model: its activations, and the order of the units.
///
///     batch.begin(tokens, targets);
///     for (unit = 0; unit < units; ++unit)   batch.forward(unit, weights of unit);
///     loss = batch.loss();
///     for (unit = units - 1; unit >= 0; --unit) batch.backward(unit, weights of unit, gradient of unit);
///
/// `backward` takes the weights again because ZeRO-3 released them after `forward`. All activations are kept, so
/// nothing is computed twice. The constructor allocates all buffers. Weights and gradients are arrays of the device,
/// which computes asynchronously. Throws std::logic_error for a unit out of order, std::invalid_argument for an array
/// of the wrong size.
template <class Device>
class pass {
public:
    using space = typename Device::space;

    /// Makes room for micro-batches of up to `largest_batch` windows. Keeps a reference to `device`.
    pass(const Device& device, const model& network, int largest_batch)
        : device_(device), model_(network), largest_batch_(checked_batch(network.config(), largest_batch)),
          tokens_(most_rows()), targets_(most_rows()), stream_(most_rows() * width()),
          final_norm_(most_rows(), width()), probabilities_(most_rows() * vocabulary), row_losses_(most_rows()),
          stream_gradient_(stream_.size()), branch_gradient_(stream_.size()), wide_gradient_(stream_.size() * 4),
          attention_gradient_(most_rows() * static_cast<std::size_t>(network.config().context)) {
        for (int layer = 0; layer != network.config().layers; ++layer)
            blocks_.emplace_back(network.config(), most_rows());
    }

    /// Starts a micro-batch of tokens.size() / context windows; `targets` are the next tokens. May be empty: a rank
    /// without text still takes part in every gather.
    void begin(std::span<const std::uint8_t> tokens, std::span<const std::uint8_t> targets) {
        const auto context = static_cast<std::size_t>(model_.config().context);
        if (tokens.size() % context != 0 || tokens.size() > most_rows() || targets.size() != tokens.size()) {
            throw std::invalid_argument("pass: given " + std::to_string(tokens.size()) + " tokens and " +
                                        std::to_string(targets.size()) + " targets, allowed are equal multiples of " +
                                        std::to_string(context) + " up to " + std::to_string(most_rows()));
        }
        device_.upload(tokens_.data(), tokens);
        device_.upload(targets_.data(), targets);
        rows_ = static_cast<int>(tokens.size());
        direction_ = direction::forward;
        next_unit_ = 0;
    }

    template <zeropp::array_in<space> Weights>
    void forward(int unit, const Weights& weights) {
        const auto given = zeropp::as_view<space>(weights);
        check_step(direction::forward, unit, given.size(), given.size());
        if (unit == 0) {
            embed(given.data());
        } else if (unit == model_.head_unit()) {
            head_forward(given.data());
        } else {
            block_forward(blocks_[static_cast<std::size_t>(unit - 1)], given.data());
        }
        if (unit == model_.head_unit()) {
            direction_ = direction::backward;
        } else {
            ++next_unit_;
        }
    }

    /// Mean cross-entropy in nats per byte, after the last unit's forward; 0 without windows. Blocks until it is
    /// computed.
    [[nodiscard]] float loss() const {
        if (direction_ != direction::backward || next_unit_ != model_.head_unit()) {
            throw std::logic_error("pass: the loss is known between the last forward and the first backward");
        }
        std::vector<double> losses(static_cast<std::size_t>(rows_));
        device_.download(std::span(losses), row_losses_.data());
        double sum = 0.0;
        for (const double loss : losses) sum += loss;
        return rows_ == 0 ? 0.0F : static_cast<float>(sum / rows_);
    }

    /// Overwrites `gradient` with the unit's gradient of the mean loss.
    template <zeropp::array_in<space> Weights, zeropp::mutable_array_in<space> Gradient>
    void backward(int unit, const Weights& weights, Gradient&& gradient) {
        const auto given = zeropp::as_view<space>(weights);
        const auto out = zeropp::as_view<space>(gradient);
        check_step(direction::backward, unit, given.size(), out.size());
        if (unit == 0) {
            embed_backward(out.data());
        } else if (unit == model_.head_unit()) {
            head_backward(given.data(), out.data());
        } else {
            block_backward(blocks_[static_cast<std::size_t>(unit - 1)], given.data(), out.data());
        }
        --next_unit_;
    }

private:
    using floats = array<float, space>;

    struct norm_buffers {
        norm_buffers(std::size_t rows, std::size_t width)
            : normalised(rows * width), inverse_deviation(rows), output(rows * width) {}

        [[nodiscard]] norm_activations view() const {
            return {.normalised = normalised.data(),
                    .inverse_deviation = inverse_deviation.data(),
                    .output = output.data()};
        }

        floats normalised;
        floats inverse_deviation;
        floats output;
    };

    struct block_buffers {
        block_buffers(const model_config& config, std::size_t rows)
            : norm1(rows, static_cast<std::size_t>(config.width)), qkv(norm1.output.size() * 3),
              probabilities(rows * static_cast<std::size_t>(config.heads) * static_cast<std::size_t>(config.context)),
              attended(norm1.output.size()), norm2(rows, static_cast<std::size_t>(config.width)),
              mlp_slope(norm1.output.size() * 4), mlp_hidden(norm1.output.size() * 4) {}

        norm_buffers norm1;
        floats qkv;            // [rows, 3 width]
        floats probabilities;  // [heads, windows, context, context]
        floats attended;       // [rows, width]
        norm_buffers norm2;
        floats mlp_slope;   // [rows, 4 width]
        floats mlp_hidden;  // [rows, 4 width]
    };

    /// Direction of the next step: units are visited forward, then backward.
    enum class direction { forward, backward };

    static int checked_batch(const model_config& config, int largest_batch) {
        const int limit = (1 << 30) / (config.context * std::max(4 * config.width, vocabulary)) + 1;
        if (largest_batch >= 1 && largest_batch <= limit) return largest_batch;
        throw std::invalid_argument("pass: largest_batch is " + std::to_string(largest_batch) + ", allowed are 1 to " +
                                    std::to_string(limit));
    }

    std::size_t width() const { return static_cast<std::size_t>(model_.config().width); }
    std::size_t most_rows() const {
        return static_cast<std::size_t>(model_.config().context) * static_cast<std::size_t>(largest_batch_);
    }

    void check_step(direction wanted, int unit, std::size_t weights, std::size_t gradient) const {
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

    void embed(const float* weights) {
        const auto& config = model_.config();
        device_.for_each_row(rows_, step::embed{config.width, config.context, tokens_.data(),
                                                cut_embedding(config, weights), stream_.data()});
    }

    void embed_backward(float* gradient) {
        const auto& config = model_.config();
        device_.for_each(static_cast<std::int64_t>(model_.unit_parameters(0)), step::fill{0.0F, gradient});
        device_.for_each_column(rows_, config.width,
                                step::add_embedding_gradient{config.width, config.context, tokens_.data(),
                                                             stream_gradient_.data(), cut_embedding(config, gradient)});
    }

    attention_head head_size() const {
        const auto& config = model_.config();
        return {.windows = rows_ / config.context,
                .context = config.context,
                .width = config.width,
                .head_width = config.width / config.heads};
    }

    /// Calls visit(offset of the head in a row, offset of its probabilities) for every head.
    template <class Visit>
    void for_each_head(Visit visit) const {
        const auto& config = model_.config();
        for (int head = 0; head < config.heads; ++head) {
            visit(head * (config.width / config.heads), std::ptrdiff_t{head} * rows_ * config.context);
        }
    }

    void block_forward(const block_buffers& kept, const float* weights) {
        const auto& config = model_.config();
        const int width = config.width;
        const auto part = cut_block(config, weights);

        layer_norm(device_, rows_, width, stream_.data(), part.norm1_gain, part.norm1_bias, kept.norm1.view());
        project(device_, {.rows = rows_, .in = width, .out = 3 * width}, kept.norm1.output.data(), part.qkv_weight,
                part.qkv_bias, kept.qkv.data());
        for_each_head([&](int place, std::ptrdiff_t probabilities) {
            attend(device_, head_size(), kept.qkv.data() + place, kept.probabilities.data() + probabilities,
                   kept.attended.data() + place);
        });
        project_onto(device_, {.rows = rows_, .in = width, .out = width}, kept.attended.data(),
                     part.attention_out_weight, part.attention_out_bias, stream_.data());

        layer_norm(device_, rows_, width, stream_.data(), part.norm2_gain, part.norm2_bias, kept.norm2.view());
        project(device_, {.rows = rows_, .in = width, .out = 4 * width}, kept.norm2.output.data(), part.mlp_in_weight,
                part.mlp_in_bias, kept.mlp_slope.data());
        gelu(device_, std::int64_t{4} * rows_ * width, kept.mlp_slope.data(), kept.mlp_hidden.data());
        project_onto(device_, {.rows = rows_, .in = 4 * width, .out = width}, kept.mlp_hidden.data(),
                     part.mlp_out_weight, part.mlp_out_bias, stream_.data());
    }

    void block_backward(const block_buffers& kept, const float* weights, float* gradient) {
        const auto& config = model_.config();
        const int width = config.width;
        const auto part = cut_block(config, weights);
        const auto out = cut_block(config, gradient);
        float* stream = stream_gradient_.data();
        float* branch = branch_gradient_.data();
        float* wide = wide_gradient_.data();

        project_backward(device_, {.rows = rows_, .in = 4 * width, .out = width}, kept.mlp_hidden.data(),
                         part.mlp_out_weight, stream, wide, out.mlp_out_weight, out.mlp_out_bias);
        device_.for_each(std::int64_t{4} * rows_ * width, step::multiply_elements{kept.mlp_slope.data(), wide});
        project_backward(device_, {.rows = rows_, .in = width, .out = 4 * width}, kept.norm2.output.data(),
                         part.mlp_in_weight, wide, branch, out.mlp_in_weight, out.mlp_in_bias);
        layer_norm_backward(device_, rows_, width, kept.norm2.view(), part.norm2_gain, branch, stream, out.norm2_gain,
                            out.norm2_bias);

        project_backward(device_, {.rows = rows_, .in = width, .out = width}, kept.attended.data(),
                         part.attention_out_weight, stream, branch, out.attention_out_weight, out.attention_out_bias);
        for_each_head([&](int place, std::ptrdiff_t probabilities) {
            attend_backward(device_, head_size(), kept.qkv.data() + place, kept.probabilities.data() + probabilities,
                            branch + place, wide + place, attention_gradient_.data());
        });
        project_backward(device_, {.rows = rows_, .in = width, .out = 3 * width}, kept.norm1.output.data(),
                         part.qkv_weight, wide, branch, out.qkv_weight, out.qkv_bias);
        layer_norm_backward(device_, rows_, width, kept.norm1.view(), part.norm1_gain, branch, stream, out.norm1_gain,
                            out.norm1_bias);
    }

    void head_forward(const float* weights) {
        const int width = model_.config().width;
        const auto part = cut_head(model_.config(), weights);
        layer_norm(device_, rows_, width, stream_.data(), part.norm_gain, part.norm_bias, final_norm_.view());
        project(device_, {.rows = rows_, .in = width, .out = vocabulary}, final_norm_.output.data(), part.weight,
                nullptr, probabilities_.data());
        device_.for_each_row(rows_, step::cross_entropy{targets_.data(), probabilities_.data(), row_losses_.data()});
    }

    void head_backward(const float* weights, float* gradient) {
        const int width = model_.config().width;
        const auto part = cut_head(model_.config(), weights);
        const auto out = cut_head(model_.config(), gradient);
        const float share = rows_ > 0 ? 1.0F / static_cast<float>(rows_) : 0.0F;
        device_.for_each_row(rows_, step::cross_entropy_backward{share, targets_.data(), probabilities_.data()});
        project_backward(device_, {.rows = rows_, .in = width, .out = vocabulary}, final_norm_.output.data(),
                         part.weight, probabilities_.data(), branch_gradient_.data(), out.weight, nullptr);
        device_.for_each(std::int64_t{rows_} * width, step::fill{0.0F, stream_gradient_.data()});
        layer_norm_backward(device_, rows_, width, final_norm_.view(), part.norm_gain, branch_gradient_.data(),
                            stream_gradient_.data(), out.norm_gain, out.norm_bias);
    }

    const Device& device_;
    model model_;
    int largest_batch_;

    array<std::uint8_t, space> tokens_;
    array<std::uint8_t, space> targets_;
    int rows_ = 0;  // windows * context
    direction direction_ = direction::backward;
    int next_unit_ = -1;  // none before begin()

    floats stream_;  // the residual stream, [rows, width]
    std::vector<block_buffers> blocks_;
    norm_buffers final_norm_;
    floats probabilities_;             // [rows, vocabulary]
    array<double, space> row_losses_;  // [rows]

    floats stream_gradient_;     // [rows, width]
    floats branch_gradient_;     // [rows, width], of one branch of a block
    floats wide_gradient_;       // [rows, 4 width], MLP hidden layer or qkv
    floats attention_gradient_;  // [windows, context, context]
};

}  // namespace zero3_gpt
