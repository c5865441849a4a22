// Any text as the configuration of zero3_gpt: settings that can be trained with, or an error that names the file.

#include "fuzz/reader.hpp"

#include "deepspeed_config.hpp"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using zeropp_test::require;
    const std::string text(data, data + size);
    const auto positive = [](double x) { return std::isfinite(x) && x > 0; };
    const auto fraction = [](double x) { return x >= 0 && x < 1; };
    try {
        const zero3_gpt::deepspeed_config c = zero3_gpt::parse_deepspeed_config(text, "file.json");
        require(c.train_micro_batch_size_per_gpu >= 1, "a batch");
        require(c.zero.hpz_partition_size >= 1, "a partition");
        require(positive(c.optimizer.lr) && positive(c.optimizer.eps), "steps that lead somewhere");
        require(fraction(c.optimizer.beta1) && fraction(c.optimizer.beta2), "averages that forget");
        require(std::isfinite(c.optimizer.weight_decay) && c.optimizer.weight_decay >= 0, "weights that do not grow");
        require(std::isfinite(c.gradient_clipping) && c.gradient_clipping >= 0, "a norm");
        require(positive(c.zeropp.block_rate), "blocks that learn");
        require(!c.zeropp.gradient_error_feedback || c.zero.quantized_gradients, "feedback of something");
        const std::string& kept = c.zeropp.secondary_quantizer;
        require(!c.zeropp.weight_differences || (c.zero.hpz_partition_size > 1 && (kept == "bf16" || kept == "fp32")),
                "what differences are added to");
        for (const std::string& w : c.warnings) require(w.starts_with("file.json: "), "a warning with the file's name");
    } catch (const zero3_gpt::config_error& e) {
        require(std::string_view(e.what()).starts_with("file.json:"), "an error with the file's name");
    }
    return 0;
}
