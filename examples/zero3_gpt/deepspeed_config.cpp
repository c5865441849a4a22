#include "deepspeed_config.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <system_error>
#include <utility>

namespace zero3_gpt {
namespace {

using json = nlohmann::ordered_json;

// DeepSpeed's keys that control machinery absent here: buckets, fp16, offload, logging, ... The key of a nested object
// stands for the whole object.
constexpr std::array<std::string_view, 51> deepspeed_keys_without_effect{
    "activation_checkpointing",
    "amp",
    "bf16.immediate_grad_update",
    "checkpoint",
    "comms_logger",
    "communication_data_type",
    "csv_monitor",
    "data_types",
    "dump_state",
    "flops_profiler",
    "fp16",
    "gradient_accumulation_steps",
    "gradient_predivide_factor",
    "memory_breakdown",
    "optimizer.params.adam_w_mode",
    "optimizer.params.bias_correction",
    "optimizer.params.torch_adam",
    "prescale_gradients",
    "scheduler",
    "sparse_gradients",
    "steps_per_print",
    "tensorboard",
    "train_batch_size",
    "wall_clock_breakdown",
    "wandb",
    "zero_allow_untested_optimizer",
    "zero_force_ds_cpu_optimizer",
    "zero_optimization.allgather_bucket_size",
    "zero_optimization.allgather_partitions",
    "zero_optimization.contiguous_gradients",
    "zero_optimization.cpu_offload",
    "zero_optimization.ignore_unused_parameters",
    "zero_optimization.load_from_fp32_weights",
    "zero_optimization.memory_efficient_linear",
    "zero_optimization.offload_optimizer",
    "zero_optimization.offload_param",
    "zero_optimization.reduce_bucket_size",
    "zero_optimization.reduce_scatter",
    "zero_optimization.round_robin_gradients",
    "zero_optimization.stage3_gather_16bit_weights_on_model_save",
    "zero_optimization.stage3_max_live_parameters",
    "zero_optimization.stage3_max_reuse_distance",
    "zero_optimization.stage3_model_persistence_threshold",
    "zero_optimization.stage3_module_granularity_threshold",
    "zero_optimization.stage3_param_persistence_threshold",
    "zero_optimization.stage3_prefetch_bucket_size",
    "zero_optimization.stage3_use_all_reduce_for_fetch_params",
    "zero_optimization.sub_group_size",
    "zero_optimization.use_multi_rank_bucket_allreduce",
    "zero_optimization.zero_quantized_nontrainable_weights",
    "zero_optimization.zeropp_loco_param",
};
static_assert(std::ranges::is_sorted(deepspeed_keys_without_effect));

/// One object of the file. Returns the values of keys and notes which keys were read, to warn of the others.
class section {
public:
    section(std::string name, std::string path, const json& object)
        : name_{std::move(name)}, path_{std::move(path)}, object_{&object} {
        if (!object.is_object()) {
            throw config_error(name_ + ": " + (path_.empty() ? "the file" : path_) + " is " + object.dump() +
                               ", allowed is an object");
        }
    }

    /// Overwrites `value` if the key is present.
    void read(const char* key, bool& value) {
        const json* given = find(key);
        if (given == nullptr) return;
        if (!given->is_boolean()) fail(key, *given, "true or false");
        value = given->get<bool>();
    }

    void read(const char* key, std::string& value) {
        const json* given = find(key);
        if (given == nullptr) return;
        if (!given->is_string()) fail(key, *given, "a string");
        value = given->get<std::string>();
    }

    void read_count(const char* key, int& value, unsigned least = 1) {
        const json* given = find(key);
        if (given == nullptr) return;
        constexpr int most = std::numeric_limits<int>::max();
        // A JSON number without sign or fraction; 2.0 has a fraction.
        if (!given->is_number_unsigned() || given->get<std::uint64_t>() < least || given->get<std::uint64_t>() > most) {
            fail(key, *given, "an integer from " + std::to_string(least) + " to " + std::to_string(most));
        }
        value = given->get<int>();
    }

    template <class Allowed>
    void read_number(const char* key, double& value, Allowed allowed, const char* allowed_words) {
        const json* given = find(key);
        if (given == nullptr) return;
        if (!given->is_number() || !allowed(as_float(given->get<double>()))) fail(key, *given, allowed_words);
        value = given->get<double>();
    }

    /// `number` as training uses it; NaN, which nothing allows, if a float cannot hold it.
    static float as_float(double number) {
        return std::abs(number) <= std::numeric_limits<float>::max() ? static_cast<float>(number)
                                                                     : std::numeric_limits<float>::quiet_NaN();
    }

    /// The key's value, or nullptr.
    const json* find(const char* key) {
        asked_.insert(key);
        const auto given = object_->find(key);
        return given == object_->end() ? nullptr : &*given;
    }

    [[nodiscard]] std::optional<section> child(const char* key) {
        const json* given = find(key);
        if (given == nullptr) return std::nullopt;
        return section{name_, path_to(key), *given};
    }

    [[noreturn]] void fail(const char* key, const json& given, const std::string& allowed) const {
        throw config_error(name_ + ": " + path_to(key) + " is " + given.dump() + ", allowed is " + allowed);
    }

    [[noreturn]] void fail_missing(const char* key, const std::string& allowed) const {
        throw config_error(name_ + ": " + path_to(key) + " is missing, allowed is " + allowed);
    }

    /// Warns of the key, if it is present: without `needed` it has no effect.
    void warn_without(const char* needed, const char* key, std::vector<std::string>& warnings) const {
        if (!object_->contains(key)) return;
        warnings.push_back(name_ + ": " + path_to(key) + " is ignored: it has no effect without " + needed);
    }

    void warn_of_the_rest(std::vector<std::string>& warnings) const {
        for (const auto& [key, value] : object_->items()) {
            if (asked_.contains(key)) continue;
            const std::string path = path_to(key);
            const bool known = std::ranges::binary_search(deepspeed_keys_without_effect, std::string_view{path});
            warnings.push_back(name_ + ": " + path + " is ignored: " +
                               (known ? "it has no effect in this example" : "unknown key, check its spelling"));
        }
    }

private:
    [[nodiscard]] std::string path_to(const std::string& key) const { return path_.empty() ? key : path_ + "." + key; }

    std::string name_;
    std::string path_;
    const json* object_;
    std::set<std::string> asked_;
};

constexpr const char* positive_words = "a float above 0";

bool positive(float value) { return value > 0.0F; }
bool not_negative(float value) { return value >= 0.0F; }
bool below_one(float value) { return value >= 0.0F && value < 1.0F; }

void read_optimizer(section& optimizer, deepspeed_config& config) {
    // DeepSpeed's Adam decouples weight decay by default, so both names mean AdamW.
    std::string type = "AdamW";
    optimizer.read("type", type);
    if (type != "AdamW" && type != "Adam") optimizer.fail("type", type, R"("AdamW" or "Adam")");
    auto params = optimizer.child("params");
    if (params) {
        auto& adamw = config.optimizer;
        params->read_number("lr", adamw.lr, positive, positive_words);
        params->read_number("eps", adamw.eps, positive, positive_words);
        params->read_number("weight_decay", adamw.weight_decay, not_negative, "a float of at least 0");
        if (const json* betas = params->find("betas")) {
            const bool pair =
                betas->is_array() && betas->size() == 2 && (*betas)[0].is_number() && (*betas)[1].is_number();
            const auto allowed = [](const json& beta) { return below_one(section::as_float(beta.get<double>())); };
            if (!pair || !allowed((*betas)[0]) || !allowed((*betas)[1])) {
                params->fail("betas", *betas, "an array of two floats, each from 0 to below 1");
            }
            adamw.beta1 = (*betas)[0].get<double>();
            adamw.beta2 = (*betas)[1].get<double>();
        }
        params->warn_of_the_rest(config.warnings);
    }
    optimizer.warn_of_the_rest(config.warnings);
}

void read_zero(section& zero, deepspeed_config& config) {
    constexpr const char* allowed_stage = "3, where this example partitions parameters, gradients and optimizer "
                                          "states, or 0, where it all-reduces gradients";
    const json* stage = zero.find("stage");
    if (stage == nullptr) zero.fail_missing("stage", allowed_stage);
    if (!stage->is_number_integer() || (*stage != 3 && *stage != 0)) zero.fail("stage", *stage, allowed_stage);
    config.zero.stage = stage->get<int>();
    zero.read("zero_quantized_weights", config.zero.quantized_weights);
    zero.read_count("zero_hpz_partition_size", config.zero.hpz_partition_size);
    if (config.zero.stage == 0 && config.zero.quantized_weights) {
        zero.fail("zero_quantized_weights", true, "false in stage 0: every rank keeps the whole weights");
    }
    if (config.zero.stage == 0 && config.zero.hpz_partition_size > 1) {
        zero.fail("zero_hpz_partition_size", config.zero.hpz_partition_size,
                  "1 in stage 0: every rank keeps the whole weights");
    }
    zero.read("zero_quantized_gradients", config.zero.quantized_gradients);
    zero.read("overlap_comm", config.zero.overlap_comm);
    zero.warn_of_the_rest(config.warnings);
}

void read_local_steps(section& local, deepspeed_config& config) {
    auto& to = config.zeropp.local_steps.emplace();
    local.read_count("islands", to.islands);
    local.read_count("every", to.every);
    local.read_count("fragments", to.fragments);
    local.read_count("delay", to.delay, 0);
    if (to.delay >= to.every) local.fail("delay", to.delay, "an integer from 0 to less than local_steps.every");
    local.read_number("learning_rate", to.learning_rate, positive, positive_words);
    local.read_number("momentum", to.momentum, below_one, "a float from 0 to below 1");
    local.read_number(
        "alpha", to.alpha, [](float value) { return value >= 0.0F && value <= 1.0F; }, "a float from 0 to 1");
    local.read("quantizer", to.quantizer);
    local.warn_of_the_rest(config.warnings);
}

void read_optimizer_mirror(section& mirror, deepspeed_config& config) {
    auto& to = config.zeropp.optimizer_mirror.emplace();
    mirror.read_count("every", to.every);
    mirror.read("quantizer", to.quantizer);
    mirror.warn_of_the_rest(config.warnings);
}

/// Line and column of byte `offset`, both counted from one.
std::string position(std::string_view text, std::size_t offset) {
    const std::string_view before = text.substr(0, std::min(offset, text.size()));
    const auto line = std::ranges::count(before, '\n') + 1;
    const auto line_start = before.rfind('\n');
    const auto column = line_start == std::string_view::npos ? before.size() + 1 : before.size() - line_start;
    return std::to_string(line) + ":" + std::to_string(column);
}

/// Parses JSON. Like DeepSpeed, refuses a key that an object has twice, because one value would be lost. Refuses deep
/// nesting, because printing it in a message would overflow the stack.
json parse(std::string_view text, const std::string& name) {
    std::vector<std::set<std::string>> open_objects;
    constexpr int deepest = 64;
    const auto refuse = [&](int depth, json::parse_event_t event, json& value) {
        const bool opens = event == json::parse_event_t::object_start || event == json::parse_event_t::array_start;
        if (opens && depth >= deepest) {
            throw config_error(name + ": expected at most " + std::to_string(deepest) +
                               " objects and arrays inside each other, given more");
        }
        if (event == json::parse_event_t::object_start) open_objects.emplace_back();
        if (event == json::parse_event_t::object_end) open_objects.pop_back();
        if (event == json::parse_event_t::key && !open_objects.back().insert(value.get<std::string>()).second) {
            throw config_error(name + ": the key " + value.dump() + " is given twice in one object");
        }
        return true;
    };
    try {
        return json::parse(text, refuse);
    } catch (const json::parse_error& error) {
        // `error.byte` counts from one and points at the byte that was not accepted.
        const std::string_view what = error.what();
        const auto reason = what.find(": ");
        throw config_error(name + ":" + position(text, error.byte > 0 ? error.byte - 1 : 0) + ": malformed JSON: " +
                           std::string{reason == std::string_view::npos ? what : what.substr(reason + 2)});
    } catch (const json::exception& error) {
        throw config_error(name + ": malformed JSON: " + error.what());
    }
}

}  // namespace

deepspeed_config parse_deepspeed_config(std::string_view text, const std::string& name) {
    const json root = parse(text, name);
    section file{name, "", root};
    deepspeed_config config;

    constexpr const char* batch_key = "train_micro_batch_size_per_gpu";
    if (file.find(batch_key) == nullptr) file.fail_missing(batch_key, "an integer of at least 1");
    file.read_count(batch_key, config.train_micro_batch_size_per_gpu);
    file.read_number("gradient_clipping", config.gradient_clipping, not_negative,
                     "a float of at least 0, where 0 is off");
    if (auto bf16 = file.child("bf16")) {
        bf16->read("enabled", config.bf16);
        bf16->warn_of_the_rest(config.warnings);
    }
    if (auto optimizer = file.child("optimizer")) read_optimizer(*optimizer, config);
    auto zero = file.child("zero_optimization");
    if (!zero) file.fail_missing("zero_optimization", R"(an object with "stage": 3)");
    read_zero(*zero, config);
    if (auto zeropp = file.child("zeropp")) {
        zeropp->read("weight_quantizer", config.zeropp.weight_quantizer);
        zeropp->read("gradient_quantizer_intra_node", config.zeropp.gradient_quantizer_intra_node);
        zeropp->read("gradient_quantizer_inter_node", config.zeropp.gradient_quantizer_inter_node);
        zeropp->read("gradient_quantizer_inter_site", config.zeropp.gradient_quantizer_inter_site);
        zeropp->read("embedding_gradient_quantizer_inter_node", config.zeropp.embedding_gradient_quantizer_inter_node);
        zeropp->read("secondary_quantizer", config.zeropp.secondary_quantizer);
        zeropp->read_count("gradient_chunks", config.zeropp.gradient_chunks);
        zeropp->read_number("block_rate", config.zeropp.block_rate, positive, positive_words);
        zeropp->read("gradient_error_feedback", config.zeropp.gradient_error_feedback);
        zeropp->read("weight_differences", config.zeropp.weight_differences);
        zeropp->read_number("weight_average", config.zeropp.weight_average, below_one,
                            "a float from 0 to below 1, where 0 is off");
        if (auto local = zeropp->child("local_steps")) read_local_steps(*local, config);
        if (auto mirror = zeropp->child("optimizer_mirror")) {
            if (config.zero.stage == 0) mirror->fail("every", 1, "stage 3: in stage 0 every rank has all moments");
            read_optimizer_mirror(*mirror, config);
        }
        if (config.zeropp.gradient_error_feedback && !config.zero.quantized_gradients) {
            zeropp->fail("gradient_error_feedback", true,
                         "false without zero_optimization.zero_quantized_gradients: there is no quantization to make "
                         "up for");
        }
        if (config.zero.stage == 0 && (config.zeropp.weight_differences || config.zeropp.gradient_error_feedback)) {
            zeropp->fail(config.zeropp.weight_differences ? "weight_differences" : "gradient_error_feedback", true,
                         "false in stage 0");
        }
        if (config.zeropp.weight_differences && config.zero.hpz_partition_size == 1) {
            zeropp->fail(
                "weight_differences", true,
                "false with zero_optimization.zero_hpz_partition_size 1: differences are added to weights that "
                "a node keeps");
        }
        const std::string& kept = config.zeropp.secondary_quantizer;
        if (config.zeropp.weight_differences && kept != "bf16" && kept != "fp32") {
            zeropp->fail("secondary_quantizer", kept,
                         R"("bf16" or "fp32" with weight_differences: what differences are added to is not quantized)");
        }
        if (!config.zero.quantized_weights) {
            zeropp->warn_without("zero_optimization.zero_quantized_weights", "weight_quantizer", config.warnings);
        }
        for (const char* const key : {"gradient_quantizer_intra_node", "gradient_quantizer_inter_node",
                                      "gradient_quantizer_inter_site", "embedding_gradient_quantizer_inter_node"}) {
            if (config.zero.quantized_gradients) break;
            zeropp->warn_without("zero_optimization.zero_quantized_gradients", key, config.warnings);
        }
        if (config.zero.hpz_partition_size == 1) {
            zeropp->warn_without("zero_optimization.zero_hpz_partition_size above 1", "secondary_quantizer",
                                 config.warnings);
        }
        zeropp->warn_of_the_rest(config.warnings);
    }
    file.warn_of_the_rest(config.warnings);
    return config;
}

deepspeed_config read_deepspeed_config(const std::filesystem::path& file) {
    const auto fail = [&file](const std::string& reason) {
        throw config_error("cannot read the configuration " + file.string() + ": " + reason);
    };
    std::error_code ignored;
    if (std::filesystem::is_directory(file, ignored)) fail("it is a folder");
    errno = 0;
    std::ifstream stream{file, std::ios::binary};
    if (!stream) fail(std::generic_category().message(errno));
    const std::string text{std::istreambuf_iterator<char>{stream}, std::istreambuf_iterator<char>{}};
    if (stream.bad()) fail(std::generic_category().message(errno));
    return parse_deepspeed_config(text, file.string());
}

}  // namespace zero3_gpt
