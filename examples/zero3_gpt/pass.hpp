#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "layers.hpp"
#include "model.hpp"

namespace zero3_gpt {

/// One micro-batch on its way through the model: the activations, and the order in which units are visited.
///
///     batch.begin(tokens, targets);
///     for (unit = 0; unit < units; ++unit)   batch.forward(unit, weights of unit);
///     loss = batch.loss();
///     for (unit = units - 1; unit >= 0; --unit) batch.backward(unit, weights of unit, gradient of unit);
///
/// `backward` takes the weights again because ZeRO-3 released them after `forward`. All activations are kept, nothing
/// is computed twice; buffers are allocated once, by the constructor. A unit out of order is a std::logic_error, an
/// array of the wrong size a std::invalid_argument.
class pass {
public:
    /// Room for micro-batches of up to `largest_batch` windows.
    pass(const model& network, int largest_batch);

    /// Starts a micro-batch of tokens.size() / context windows; `targets` are the tokens that follow. No windows at all
    /// is allowed: a rank that has run out of text still takes part in every gather. Both arrays must live until the
    /// micro-batch ends.
    void begin(std::span<const std::uint8_t> tokens, std::span<const std::uint8_t> targets);

    void forward(int unit, std::span<const float> weights);

    /// Mean cross-entropy in nats per byte, after the last unit's forward; 0 without windows.
    [[nodiscard]] float loss() const;

    /// Overwrites `gradient` with the unit's whole gradient of the mean loss.
    void backward(int unit, std::span<const float> weights, std::span<float> gradient);

private:
    struct norm_buffers {
        norm_buffers(std::size_t rows, std::size_t width);
        [[nodiscard]] norm_activations view();

        std::vector<float> normalised;
        std::vector<float> inverse_deviation;
        std::vector<float> output;
    };

    struct block_buffers {
        block_buffers(const model_config& config, std::size_t windows);

        norm_buffers norm1;
        std::vector<float> qkv;            // [rows, 3 width]
        std::vector<float> probabilities;  // [windows, heads, context, context]
        std::vector<float> attended;       // [rows, width]
        norm_buffers norm2;
        std::vector<float> mlp_slope;   // [rows, 4 width]
        std::vector<float> mlp_hidden;  // [rows, 4 width]
    };

    /// The next step: units are visited forward, then backward.
    enum class direction { forward, backward };

    void check_step(direction wanted, int unit, std::size_t weights, std::size_t gradient) const;

    void embed(const float* weights);
    void block_forward(block_buffers& kept, const float* weights);
    void head_forward(const float* weights);

    void embed_backward(float* gradient);
    void block_backward(block_buffers& kept, const float* weights, float* gradient);
    void head_backward(const float* weights, float* gradient);

    /// Calls visit(qkv offset, probabilities offset, attended offset) for every head of every window.
    template <class Visit>
    void for_each_head(Visit visit) const;

    model model_;
    int largest_batch_;

    std::span<const std::uint8_t> tokens_;
    std::span<const std::uint8_t> targets_;
    int windows_ = 0;
    int rows_ = 0;  // windows * context
    direction direction_ = direction::backward;
    int next_unit_ = -1;  // none before begin()
    double loss_sum_ = 0.0;

    std::vector<float> stream_;  // the residual stream, [rows, width]
    std::vector<block_buffers> blocks_;
    norm_buffers final_norm_;
    std::vector<float> probabilities_;  // [rows, vocabulary]

    std::vector<float> stream_gradient_;     // [rows, width]
    std::vector<float> branch_gradient_;     // [rows, width], inside one branch of a block
    std::vector<float> wide_gradient_;       // [rows, 4 width], MLP hidden layer or qkv
    std::vector<float> attention_gradient_;  // [context, context]
};

}  // namespace zero3_gpt
