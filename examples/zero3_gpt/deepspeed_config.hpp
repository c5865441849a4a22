#pragma once

#include <filesystem>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace zero3_gpt {

/// The part of a DeepSpeed configuration that this example acts on, under DeepSpeed's own names and with its
/// defaults, and the `zeropp` object that DeepSpeed does not have.
struct deepspeed_config {
    struct adamw_params {
        double lr = 1e-3;
        double beta1 = 0.9;
        double beta2 = 0.999;
        double eps = 1e-8;
        double weight_decay = 0.0;
    };
    struct zero_settings {
        int stage = 3;                     ///< 3: everything partitioned; 0: data parallel, gradients all-reduced
        bool quantized_weights = false;    ///< qwZ: zero_quantized_weights
        int hpz_partition_size = 1;        ///< hpZ: zero_hpz_partition_size, 1 is off
        bool quantized_gradients = false;  ///< qgZ: zero_quantized_gradients
        bool overlap_comm = true;          ///< DeepSpeed's default for stage 3
    };
    /// Names of quantizers, passed on as they are: the library knows which exist.
    struct zeropp_settings {
        std::string weight_quantizer = "int8:256:fp16";
        std::string gradient_quantizer_inside = "int8:256:bf16";
        std::string gradient_quantizer_across = "int4:128:signed:bf16";
        std::string embedding_weight_quantizer;           ///< of embeddings and head; empty: as the others'
        std::string embedding_gradient_quantizer_across;  ///< likewise
        std::string secondary_quantizer = "bf16";
        int gradient_chunks = 1;               ///< chunks that a gradient is reduced in, one after the other
        bool gradient_error_feedback = false;  ///< keep what quantization loses of gradients, add it to the next ones
        double block_rate = 1.0;               ///< of the learning rate, for all but embeddings and head
        bool weight_differences = false;       ///< nodes keep the weights, differences move; needs hpZ

        /// For a unit that is the embeddings or the head, or another.
        [[nodiscard]] const std::string& weights(bool embedding) const {
            return embedding && !embedding_weight_quantizer.empty() ? embedding_weight_quantizer : weight_quantizer;
        }
        [[nodiscard]] const std::string& gradients_across(bool embedding) const {
            return embedding && !embedding_gradient_quantizer_across.empty() ? embedding_gradient_quantizer_across
                                                                             : gradient_quantizer_across;
        }
    };

    int train_micro_batch_size_per_gpu = 1;
    double gradient_clipping = 0.0;  ///< largest global gradient norm, 0 is off
    bool bf16 = false;               ///< bf16.enabled
    adamw_params optimizer;
    zero_settings zero;
    zeropp_settings zeropp;

    /// One line for each key that was given and has no effect, with its full path.
    std::vector<std::string> warnings;
};

/// What is wrong with a configuration: the file, the key, what was given and what is allowed.
class config_error : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

/// Reads a configuration from a file. Throws config_error.
[[nodiscard]] deepspeed_config read_deepspeed_config(const std::filesystem::path& file);

/// The same from text; `name` stands for the file in messages.
[[nodiscard]] deepspeed_config parse_deepspeed_config(std::string_view json, const std::string& name);

}  // namespace zero3_gpt
