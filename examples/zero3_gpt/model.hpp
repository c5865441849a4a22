#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace zero3_gpt {

/// A token is a byte.
inline constexpr int vocabulary = 256;

struct model_config {
    int layers = 3;
    int heads = 4;
    int width = 160;
    int context = 64;  ///< tokens in one window
};

/// One tensor of a unit: elements [begin, begin + size) of its flat array. Weight decay applies to the first `decayed`.
struct unit_tensor {
    std::size_t begin;
    std::size_t size;
    std::size_t decayed;
};

/// Parameters of unit 0. Matrices are row-major; a projection maps rows of length `in` by a matrix [in, out].
template <class Float>
struct embedding_parameters {
    Float* token;     // [vocabulary, width]
    Float* position;  // [context, width]
};

/// Parameters of units 1 to `layers`. The matrices, which decay, come first in a unit and so in a rank's shards.
template <class Float>
struct block_parameters {
    Float* qkv_weight;            // [width, 3 width], columns: queries, keys, values
    Float* attention_out_weight;  // [width, width]
    Float* mlp_in_weight;         // [width, 4 width]
    Float* mlp_out_weight;        // [4 width, width]
    Float* qkv_bias;              // [3 width]
    Float* attention_out_bias;    // [width]
    Float* mlp_in_bias;           // [4 width]
    Float* mlp_out_bias;          // [width]
    Float* norm1_gain;            // [width]
    Float* norm1_bias;            // [width]
    Float* norm2_gain;            // [width]
    Float* norm2_bias;            // [width]
};

/// Parameters of unit layers + 1.
template <class Float>
struct head_parameters {
    Float* weight;     // [width, vocabulary]
    Float* norm_gain;  // [width]
    Float* norm_bias;  // [width]
};

/// Shapes and initial weights of a byte-level GPT: pre-LayerNorm blocks, learned positions, untied head.
///
/// Parameters come in units, which ZeRO-3 gathers and reduces one at a time: embeddings, each block, head. A unit's
/// parameters are one contiguous array, in the order of the structs above.
class model {
public:
    /// Reads the initial weights from files that --dump has written; `weights` is FOLDER/RUN. If it is empty, initial
    /// weights are random. Throws std::invalid_argument with the wrong value and the allowed ones.
    explicit model(model_config config, const std::string& weights = {});

    [[nodiscard]] const model_config& config() const noexcept { return config_; }
    [[nodiscard]] int units() const noexcept { return config_.layers + 2; }
    [[nodiscard]] int head_unit() const noexcept { return config_.layers + 1; }
    [[nodiscard]] std::size_t unit_parameters(int unit) const;
    [[nodiscard]] std::size_t parameters() const;

    /// The unit's tensors in order. Weight decay applies to the matrices of blocks and head, as in GPT: not to
    /// embeddings, biases and LayerNorm.
    [[nodiscard]] std::vector<unit_tensor> tensors(int unit) const;

    /// The unit's initial weights. Random weights are GPT-2's: normal with deviation 0.02, divided by
    /// sqrt(2 layers) for the two projections onto the residual stream; gains one, biases zero. The bits are
    /// equal on every rank and machine.
    void initialise(int unit, std::uint64_t seed, std::span<float> weights) const;

private:
    void check_unit(int unit) const;

    model_config config_;
    std::vector<std::vector<float>> given_;  // initial weights of units; empty: random ones
};

/// Cuts a unit's flat array into its tensors; `Float` is float (gradients) or const float (weights).
template <class Float>
[[nodiscard]] embedding_parameters<Float> cut_embedding(const model_config& config, Float* flat) noexcept {
    return {.token = flat, .position = flat + std::ptrdiff_t{vocabulary} * config.width};
}

template <class Float>
[[nodiscard]] block_parameters<Float> cut_block(const model_config& config, Float* flat) noexcept {
    const std::ptrdiff_t width = config.width;
    const auto take = [&flat](std::ptrdiff_t count) {
        Float* part = flat;
        flat += count;
        return part;
    };
    // Braces evaluate left to right, so the tensors lie in the order of the members.
    return {.qkv_weight = take(3 * width * width),
            .attention_out_weight = take(width * width),
            .mlp_in_weight = take(4 * width * width),
            .mlp_out_weight = take(4 * width * width),
            .qkv_bias = take(3 * width),
            .attention_out_bias = take(width),
            .mlp_in_bias = take(4 * width),
            .mlp_out_bias = take(width),
            .norm1_gain = take(width),
            .norm1_bias = take(width),
            .norm2_gain = take(width),
            .norm2_bias = take(width)};
}

template <class Float>
[[nodiscard]] head_parameters<Float> cut_head(const model_config& config, Float* flat) noexcept {
    const std::ptrdiff_t width = config.width;
    Float* norm = flat + width * vocabulary;
    return {.weight = flat, .norm_gain = norm, .norm_bias = norm + width};
}

}  // namespace zero3_gpt
