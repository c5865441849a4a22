#pragma once

#include <filesystem>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace zero3_gpt {

/// Local steps: islands of consecutive ranks train by themselves and exchange their progress. One island exchanges
/// nothing, but has the outer optimizer.
struct local_settings {
    int islands = 1;
    int every = 30;              ///< inner steps between two exchanges of a unit
    int fragments = 1;           ///< fragments that take turns; unit u belongs to fragment u % fragments
    int delay = 0;               ///< inner steps between the begin of an exchange and its use
    double learning_rate = 0.7;  ///< of the outer optimizer
    double momentum = 0.9;       ///< of the outer optimizer, Nesterov's
    double alpha = 0.0;          ///< part of an island's own weights that an exchange keeps
    std::string quantizer = "bf16";
};

/// Copies of the optimizer's moments on partner nodes, for survivors of a failure.
struct mirror_settings {
    int every = 1;                   ///< optimizer steps between two copies
    std::string quantizer = "bf16";  ///< or "fp32"
};

/// Keys of a DeepSpeed configuration that affect this example, with DeepSpeed's names and defaults, and the `zeropp`
/// object, which DeepSpeed does not have.
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
    /// Names of quantizers, which the library parses.
    struct zeropp_settings {
        std::string weight_quantizer = "int8:256:fp16";
        std::string gradient_quantizer_intra_node = "int8:256:bf16";
        std::string gradient_quantizer_inter_node = "int4:128:signed:bf16";
        std::string gradient_quantizer_inter_site;            ///< between sites; empty: as between nodes
        std::string embedding_gradient_quantizer_inter_node;  ///< of embeddings and head; empty: as of other layers
        std::string secondary_quantizer = "bf16";
        int gradient_chunks = 1;               ///< chunks of a gradient's reduce-scatter
        bool gradient_error_feedback = false;  ///< adds a gradient's quantization error to the next one
        double block_rate = 1.0;               ///< factor of the learning rate of blocks
        bool weight_differences = false;       ///< nodes keep weights, and differences move; needs hpZ
        double weight_average = 0.0;           ///< decay of an average of weights for evaluation; 0 is off
        std::optional<local_settings> local_steps;
        std::optional<mirror_settings> optimizer_mirror;

        /// Inter-node quantizer of a unit's gradients; `embedding` is true for embeddings and head.
        [[nodiscard]] const std::string& gradients_inter_node(bool embedding) const {
            return embedding && !embedding_gradient_quantizer_inter_node.empty()
                       ? embedding_gradient_quantizer_inter_node
                       : gradient_quantizer_inter_node;
        }
        /// Quantizer of a unit's gradients between sites: of embeddings and head, as between nodes.
        [[nodiscard]] const std::string& gradients_inter_site(bool embedding) const {
            const bool as_between_nodes = gradient_quantizer_inter_site.empty() ||
                                          (embedding && !embedding_gradient_quantizer_inter_node.empty());
            return as_between_nodes ? gradients_inter_node(embedding) : gradient_quantizer_inter_site;
        }
        /// Number of islands; one without local steps.
        [[nodiscard]] int islands() const { return local_steps ? local_steps->islands : 1; }
    };

    int train_micro_batch_size_per_gpu = 1;
    double gradient_clipping = 0.0;  ///< largest global gradient norm, 0 is off
    bool bf16 = false;               ///< bf16.enabled
    adamw_params optimizer;
    zero_settings zero;
    zeropp_settings zeropp;

    /// One line for each given key without effect, with its full path.
    std::vector<std::string> warnings;
};

/// An error in a configuration: names the file, the key, the given value and the allowed ones.
class config_error : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

/// Reads a configuration from a file. Throws config_error.
[[nodiscard]] deepspeed_config read_deepspeed_config(const std::filesystem::path& file);

/// Reads a configuration from text; `name` stands for the file in messages. Throws config_error.
[[nodiscard]] deepspeed_config parse_deepspeed_config(std::string_view json, const std::string& name);

}  // namespace zero3_gpt
