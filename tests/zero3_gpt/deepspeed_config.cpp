#include "settings.hpp"

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

#include "support/catch.hpp"
#include "support/expectations.hpp"

namespace {

using zero3_gpt::config_error;
using zero3_gpt::deepspeed_config;
using zero3_gpt::parse_deepspeed_config;
using zeropp_test::contains;
using zeropp_test::thrown;

std::filesystem::path samples() {
    return std::filesystem::path{__FILE__}.parent_path() / "../../examples/zero3_gpt/configs";
}

/// A complete configuration with `more` added to the file and `zero` to its zero_optimization.
std::string with(const std::string& more, const std::string& zero = "") {
    return R"({"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 3)" +
           (zero.empty() ? "" : ", " + zero) + "}" + (more.empty() ? "" : ", " + more) + "}";
}

std::string error_of(const std::string& json) {
    return thrown<config_error>([&] { (void)parse_deepspeed_config(json, "ds.json"); });
}

}  // namespace

TEST_CASE("the defaults are DeepSpeed's", "[zero3_gpt][deepspeed_config]") {
    const deepspeed_config config = parse_deepspeed_config(with(""), "ds.json");
    CHECK(config.train_micro_batch_size_per_gpu == 4);
    CHECK(config.gradient_clipping == 0.0);
    CHECK_FALSE(config.bf16);
    CHECK(config.optimizer.lr == 1e-3);
    CHECK(config.optimizer.beta1 == 0.9);
    CHECK(config.optimizer.beta2 == 0.999);
    CHECK(config.optimizer.eps == 1e-8);
    CHECK(config.optimizer.weight_decay == 0.0);
    CHECK_FALSE(config.zero.quantized_weights);
    CHECK(config.zero.hpz_partition_size == 1);
    CHECK_FALSE(config.zero.quantized_gradients);
    CHECK(config.zero.overlap_comm);
    CHECK(config.warnings.empty());
}

TEST_CASE("every key arrives where it belongs", "[zero3_gpt][deepspeed_config]") {
    const deepspeed_config config = parse_deepspeed_config(
        with(R"("gradient_clipping": 1, "bf16": {"enabled": true},
              "optimizer": {"type": "Adam",
                            "params": {"lr": 3e-4, "betas": [0.8, 0.95], "eps": 1e-6, "weight_decay": 0.01}},
              "zeropp": {"weight_quantizer": "a", "gradient_quantizer_intra_node": "b",
                         "gradient_quantizer_inter_node": "c", "secondary_quantizer": "d",
                         "embedding_gradient_quantizer_inter_node": "e",
                         "gradient_chunks": 8, "block_rate": 0.5, "gradient_error_feedback": true})",
             R"("zero_quantized_weights": true, "zero_hpz_partition_size": 8, "zero_quantized_gradients": true,
              "overlap_comm": false)"),
        "ds.json");
    CHECK(config.gradient_clipping == 1.0);
    CHECK(config.bf16);
    CHECK(config.optimizer.lr == 3e-4);
    CHECK(config.optimizer.beta1 == 0.8);
    CHECK(config.optimizer.beta2 == 0.95);
    CHECK(config.optimizer.eps == 1e-6);
    CHECK(config.optimizer.weight_decay == 0.01);
    CHECK(config.zero.quantized_weights);
    CHECK(config.zero.hpz_partition_size == 8);
    CHECK(config.zero.quantized_gradients);
    CHECK_FALSE(config.zero.overlap_comm);
    CHECK(config.zeropp.weight_quantizer == "a");
    CHECK(config.zeropp.gradient_quantizer_intra_node == "b");
    CHECK(config.zeropp.gradient_quantizer_inter_node == "c");
    CHECK(config.zeropp.secondary_quantizer == "d");
    CHECK(config.zeropp.embedding_gradient_quantizer_inter_node == "e");
    CHECK(config.zeropp.gradient_chunks == 8);
    CHECK(config.zeropp.block_rate == 0.5);
    CHECK(config.zeropp.gradient_error_feedback);
    CHECK(config.warnings.empty());
}

TEST_CASE("weight differences need hpZ, and weights that are not quantized", "[zero3_gpt][deepspeed_config]") {
    const std::string hpz = R"("zero_hpz_partition_size": 2)";
    CHECK(parse_deepspeed_config(with(R"("zeropp": {"weight_differences": true})", hpz), "ds.json")
              .zeropp.weight_differences);
    for (const char* const without : {R"("zero_hpz_partition_size": 1)", R"("zero_quantized_weights": true)"}) {
        CHECK(error_of(with(R"("zeropp": {"weight_differences": true})", without)) ==
              "ds.json: zeropp.weight_differences is true, allowed is false with "
              "zero_optimization.zero_hpz_partition_size 1: differences are added to weights that a node keeps");
    }
    const std::string quantized = R"("zeropp": {"weight_differences": true, "secondary_quantizer": "int8:256:fp16"})";
    CHECK(error_of(with(quantized, hpz)) ==
          "ds.json: zeropp.secondary_quantizer is \"int8:256:fp16\", allowed is \"bf16\" or \"fp32\" with "
          "weight_differences: what differences are added to is not quantized");
}

TEST_CASE("local steps have a delay below their interval, and rates in range", "[zero3_gpt][deepspeed_config]") {
    const auto local = [](const std::string& members) { return R"("zeropp": {"local_steps": {)" + members + "}}"; };
    const auto config = parse_deepspeed_config(
        with(local(R"("islands": 2, "every": 8, "fragments": 4, "delay": 0, "learning_rate": 0.5, "momentum": 0,
                      "alpha": 1, "quantizer": "lloyd4:128:h128", "evry": 8)"),
             R"("zero_hpz_partition_size": 2)"),
        "ds.json");
    REQUIRE(config.zeropp.local_steps);
    const auto& read = *config.zeropp.local_steps;
    CHECK(read.islands == 2);
    CHECK(read.every == 8);
    CHECK(read.fragments == 4);
    CHECK(read.delay == 0);
    CHECK(read.learning_rate == 0.5);
    CHECK(read.momentum == 0.0);
    CHECK(read.alpha == 1.0);
    CHECK(read.quantizer == "lloyd4:128:h128");
    CHECK(config.warnings ==
          std::vector<std::string>{"ds.json: zeropp.local_steps.evry is ignored: unknown key, check its spelling"});
    const auto refused = [&](const std::string& members, const std::string& words) {
        CHECK(error_of(with(local(members), R"("zero_hpz_partition_size": 2)")) ==
              "ds.json: zeropp.local_steps." + words);
    };
    refused(R"("every": 4, "delay": 4)", "delay is 4, allowed is an integer from 0 to less than local_steps.every");
    refused(R"("every": 0)", "every is 0, allowed is an integer from 1 to 2147483647");
    refused(R"("delay": -1)", "delay is -1, allowed is an integer from 0 to 2147483647");
    refused(R"("learning_rate": 0)", "learning_rate is 0, allowed is a float above 0");
    refused(R"("learning_rate": 1e39)", "learning_rate is 1e+39, allowed is a float above 0");
    refused(R"("momentum": 1)", "momentum is 1, allowed is a float from 0 to below 1");
    refused(R"("momentum": 0.99999999)", "momentum is 0.99999999, allowed is a float from 0 to below 1");
    refused(R"("alpha": 1.5)", "alpha is 1.5, allowed is a float from 0 to 1");
    CHECK(error_of(with(R"("zeropp": {"weight_average": 1})", R"("zero_hpz_partition_size": 2)")) ==
          "ds.json: zeropp.weight_average is 1, allowed is a float from 0 to below 1, where 0 is off");
}

TEST_CASE("error feedback without quantized gradients is refused", "[zero3_gpt][deepspeed_config]") {
    const std::string feedback = R"("zeropp": {"gradient_error_feedback": true})";
    CHECK(parse_deepspeed_config(with(feedback, R"("zero_quantized_gradients": true)"), "ds.json")
              .zeropp.gradient_error_feedback);
    CHECK(error_of(with(feedback, R"("zero_quantized_gradients": false)")) ==
          "ds.json: zeropp.gradient_error_feedback is true, allowed is false without "
          "zero_optimization.zero_quantized_gradients: there is no quantization to make up for");
}

TEST_CASE("keys without effect are named with their full path", "[zero3_gpt][deepspeed_config]") {
    const deepspeed_config config =
        parse_deepspeed_config(with(R"("train_batch_size": "auto", "fp16": {"enabled": false}, "bf16": {"fast": true},
              "optimizer": {"params": {"torch_adam": true, "lrr": 1}, "fused": true}, "zeropp": {"weights": "int8"})",
                                    R"("reduce_bucket_size": 5e8, "contiguous_gradients": true, "reduce_scatter": true,
              "zero_quantised_weights": true)"),
                               "ds.json");
    struct expectation {
        const char* path;
        bool known;
    };
    const std::vector<expectation> expected{{"bf16.fast", false},
                                            {"optimizer.params.torch_adam", true},
                                            {"optimizer.params.lrr", false},
                                            {"optimizer.fused", false},
                                            {"zero_optimization.reduce_bucket_size", true},
                                            {"zero_optimization.contiguous_gradients", true},
                                            {"zero_optimization.reduce_scatter", true},
                                            {"zero_optimization.zero_quantised_weights", false},
                                            {"zeropp.weights", false},
                                            {"train_batch_size", true},
                                            {"fp16", true}};
    REQUIRE(config.warnings.size() == expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i) {
        CHECK(contains(config.warnings[i], std::string{"ds.json: "} + expected[i].path + " is ignored"));
        CHECK(contains(config.warnings[i], expected[i].known ? "no effect" : "unknown key"));
    }
    CHECK(config.optimizer.lr == 1e-3);
}

TEST_CASE("formats of what is not quantized, or not kept, have no effect", "[zero3_gpt][deepspeed_config]") {
    const std::string formats =
        R"("zeropp": {"weight_quantizer": "a", "gradient_quantizer_intra_node": "b", "secondary_quantizer": "c",
                      "gradient_quantizer_inter_node": "d", "gradient_quantizer_inter_site": "e",
                      "embedding_gradient_quantizer_inter_node": "f"})";
    const auto warnings = [&](const std::string& zero) {
        return parse_deepspeed_config(with(formats, zero), "ds.json").warnings;
    };
    const auto without = [](const std::string& key, const std::string& needed) {
        return "ds.json: zeropp." + key + " is ignored: it has no effect without zero_optimization." + needed;
    };
    const std::string weights = R"("zero_quantized_weights": true)", gradients = R"("zero_quantized_gradients": true)";
    const std::string hpz = R"("zero_hpz_partition_size": 2)";
    CHECK(warnings(weights + "," + gradients + "," + hpz).empty());
    CHECK(warnings(gradients + "," + hpz) ==
          std::vector<std::string>{without("weight_quantizer", "zero_quantized_weights")});
    CHECK(warnings(weights + "," + gradients) ==
          std::vector<std::string>{without("secondary_quantizer", "zero_hpz_partition_size above 1")});
    CHECK(warnings(weights + "," + hpz) ==
          std::vector<std::string>{without("gradient_quantizer_intra_node", "zero_quantized_gradients"),
                                   without("gradient_quantizer_inter_node", "zero_quantized_gradients"),
                                   without("gradient_quantizer_inter_site", "zero_quantized_gradients"),
                                   without("embedding_gradient_quantizer_inter_node", "zero_quantized_gradients")});
}

TEST_CASE("a wrong value names the key, what was given and what is allowed", "[zero3_gpt][deepspeed_config]") {
    struct wrong {
        std::string json;
        const char* message;
    };
    const auto params = [](const std::string& text) { return with(R"("optimizer": {"params": {)" + text + "}}"); };
    const auto stage = [](const std::string& text) {
        return R"({"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": )" + text + "}}";
    };
    const auto batch = [](const std::string& text) {
        return R"({"train_micro_batch_size_per_gpu": )" + text + R"(, "zero_optimization": {"stage": 3}})";
    };
    const std::vector<wrong> cases{
        {stage("2"), "zero_optimization.stage is 2, allowed is 3"},
        {stage(R"(0, "zero_quantized_weights": true)"), "zero_quantized_weights is true, allowed is false in stage 0"},
        {stage(R"(0, "zero_hpz_partition_size": 2)"), "zero_hpz_partition_size is 2, allowed is 1 in stage 0"},
        {R"({"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 0, "zero_quantized_gradients": true},
             "zeropp": {"gradient_error_feedback": true}})",
         "zeropp.gradient_error_feedback is true, allowed is false in stage 0"},
        {stage("3.0"), "zero_optimization.stage is 3.0, allowed is 3"},
        {stage("\"3\""), "zero_optimization.stage is \"3\", allowed is 3"},
        {R"({"train_micro_batch_size_per_gpu": 1, "zero_optimization": {}})", "zero_optimization.stage is missing"},
        {R"({"train_micro_batch_size_per_gpu": 1})", "zero_optimization is missing"},
        {R"({"train_micro_batch_size_per_gpu": 1, "zero_optimization": true})",
         "zero_optimization is true, allowed is an object"},
        {R"({"zero_optimization": {"stage": 3}})", "train_micro_batch_size_per_gpu is missing"},
        {batch("0"), "train_micro_batch_size_per_gpu is 0, allowed is an integer from 1"},
        {batch("\"auto\""), "train_micro_batch_size_per_gpu is \"auto\", allowed is an integer from 1"},
        {with(R"("zeropp": {"gradient_chunks": 0})"), "zeropp.gradient_chunks is 0, allowed is"},
        {with("", R"("zero_hpz_partition_size": 0)"), "zero_optimization.zero_hpz_partition_size is 0, allowed is"},
        {with("", R"("zero_hpz_partition_size": -2)"), "zero_optimization.zero_hpz_partition_size is -2, allowed is"},
        {with("", R"("zero_hpz_partition_size": 1.5)"), "zero_optimization.zero_hpz_partition_size is 1.5, allowed is"},
        {with("", R"("zero_hpz_partition_size": 2147483648)"), "zero_hpz_partition_size is 2147483648, allowed is"},
        {with("", R"("zero_hpz_partition_size": true)"), "zero_hpz_partition_size is true, allowed is"},
        {with("", R"("zero_quantized_weights": 1)"),
         "zero_optimization.zero_quantized_weights is 1, allowed is true or false"},
        {with("", R"("zero_quantized_gradients": "yes")"), "zero_quantized_gradients is \"yes\", allowed is true or"},
        {with("", R"("overlap_comm": null)"), "zero_optimization.overlap_comm is null, allowed is true or false"},
        {with(R"("gradient_clipping": -1)"), "gradient_clipping is -1, allowed is a float of at least 0"},
        {with(R"("gradient_clipping": 1e300)"), "gradient_clipping is 1e+300, allowed is a float of at least 0"},
        {with(R"("zeropp": {"block_rate": 1e-50})"), "zeropp.block_rate is 1e-50, allowed is a float above 0"},
        {with(R"("bf16": true)"), "bf16 is true, allowed is an object"},
        {with(R"("bf16": {"enabled": "auto"})"), "bf16.enabled is \"auto\", allowed is true or false"},
        {with(R"("optimizer": {"type": "SGD"})"), "optimizer.type is \"SGD\", allowed is \"AdamW\" or \"Adam\""},
        {params(R"("lr": 0)"), "optimizer.params.lr is 0, allowed is a float above 0"},
        {params(R"("lr": 1e-60)"), "optimizer.params.lr is 1e-60, allowed"},
        {params(R"("eps": 1e-60)"), "optimizer.params.eps is 1e-60, allowed"},
        {params(R"("betas": [0.9, 0.99999999])"), "optimizer.params.betas is [0.9,0.99999999], allowed"},
        {params(R"("lr": -0.1)"), "optimizer.params.lr is -0.1, allowed"},
        {params(R"("lr": "auto")"), "optimizer.params.lr is \"auto\", allowed"},
        {params(R"("eps": 0)"), "optimizer.params.eps is 0, allowed"},
        {params(R"("weight_decay": -1)"), "optimizer.params.weight_decay is -1, allowed"},
        {params(R"("betas": [0.9])"), "optimizer.params.betas is [0.9], allowed is an array of two"},
        {params(R"("betas": [0.9, 1.0])"), "optimizer.params.betas is [0.9,1.0], allowed"},
        {params(R"("betas": [-0.1, 0.9])"), "optimizer.params.betas is [-0.1,0.9], allowed"},
        {params(R"("betas": [0.9, "b"])"), "optimizer.params.betas is [0.9,\"b\"], allowed"},
        {with(R"("zeropp": {"weight_quantizer": 8})"), "zeropp.weight_quantizer is 8, allowed is a string"},
        {"[1]", "the file is [1], allowed is an object"},
    };
    for (const auto& [json, message] : cases) {
        const std::string error = error_of(json);
        CAPTURE(json, error);
        CHECK(contains(error, std::string{"ds.json: "}));
        CHECK(contains(error, message));
    }
}

TEST_CASE("malformed JSON is located", "[zero3_gpt][deepspeed_config]") {
    CHECK(contains(error_of("{\n  \"a\": 1,\n  \"b\": ]\n}"), "ds.json:3:8: malformed JSON"));
    CHECK(contains(error_of("?"), "ds.json:1:1: malformed JSON"));
    CHECK(contains(error_of(R"({"a": NaN})"), "ds.json:1:7: malformed JSON: syntax error while parsing value"));
    CHECK(contains(error_of("{\"a\": 1"), "ds.json:1:8: malformed JSON"));
    CHECK(contains(error_of(""), "ds.json:1:1: malformed JSON"));
    CHECK(contains(error_of("{\"a\": 1e999}"), "ds.json: malformed JSON"));
    CHECK(contains(error_of(with(R"("bf16": {"enabled": true, "enabled": false})")), "\"enabled\" is given twice"));
    CHECK(error_of(with(R"("bf16": {"enabled": true}, "fp16": {"enabled": true})")) == "<nothing thrown>");
}

TEST_CASE("a configuration that is nested too deeply is refused", "[zero3_gpt][deepspeed_config]") {
    const auto nested = [](std::size_t levels) {
        return error_of(with("\"fp16\": " + std::string(levels, '[') + std::string(levels, ']')));
    };
    // The file itself is one level more.
    CHECK(nested(63) == "<nothing thrown>");
    const std::string refused = "ds.json: expected at most 64 objects and arrays inside each other, given more";
    CHECK(nested(64) == refused);
    CHECK(nested(300'000) == refused);
    // A value that a message would show.
    CHECK(error_of(R"({"train_micro_batch_size_per_gpu": )" + std::string(300'000, '[')) == refused);
}

TEST_CASE("a file that cannot be read says why", "[zero3_gpt][deepspeed_config]") {
    const auto message = [](const std::filesystem::path& file) {
        return thrown<config_error>([&] { (void)zero3_gpt::read_deepspeed_config(file); });
    };
    CHECK(contains(message(samples() / "missing.json"), "missing.json: No such file"));
    CHECK(contains(message(samples()), "is a folder"));
}

TEST_CASE("the sample configurations switch what their names say", "[zero3_gpt][deepspeed_config]") {
    struct expectation {
        const char* file;
        bool quantized_weights;
        int hpz_partition_size;
        bool quantized_gradients;
    };
    const auto expected = GENERATE(expectation{"zero3.json", false, 1, false}, expectation{"qwz.json", true, 1, false},
                                   expectation{"hpz.json", false, 2, false}, expectation{"qgz.json", false, 1, true},
                                   expectation{"zeropp.json", true, 2, true}, expectation{"ddp.json", false, 1, true});
    CAPTURE(expected.file);
    const deepspeed_config config = zero3_gpt::read_deepspeed_config(samples() / expected.file);
    CHECK(config.zero.stage == (std::string(expected.file) == "ddp.json" ? 0 : 3));
    CHECK(config.zero.quantized_weights == expected.quantized_weights);
    CHECK(config.zero.hpz_partition_size == expected.hpz_partition_size);
    CHECK(config.zero.quantized_gradients == expected.quantized_gradients);
    CHECK(config.zeropp.weight_quantizer == "int8:256:fp16");
    CHECK(config.zeropp.gradient_quantizer_intra_node == "int8:256:bf16");
    CHECK(config.zeropp.gradient_quantizer_inter_node == "int4:128:signed:bf16");
    CHECK(config.zeropp.secondary_quantizer == "bf16");
    CHECK(config.zeropp.embedding_gradient_quantizer_inter_node.empty());
    CHECK(config.zeropp.gradient_chunks == 1);
    CHECK(config.zeropp.block_rate == 1.0);
    CHECK_FALSE(config.zeropp.gradient_error_feedback);
    CHECK_FALSE(config.zeropp.weight_differences);
    CHECK(config.bf16);
    CHECK(config.warnings.empty());

    // They differ in communication only, so that their losses can be compared.
    const deepspeed_config baseline = zero3_gpt::read_deepspeed_config(samples() / "zero3.json");
    CHECK(config.train_micro_batch_size_per_gpu == baseline.train_micro_batch_size_per_gpu);
    CHECK(config.gradient_clipping == baseline.gradient_clipping);
    CHECK(config.optimizer.lr == baseline.optimizer.lr);
    CHECK(config.optimizer.beta2 == baseline.optimizer.beta2);
    CHECK(config.optimizer.weight_decay == baseline.optimizer.weight_decay);
}

TEST_CASE("numbers of the command line are checked as they are used", "[zero3_gpt][settings]") {
    const std::string config = samples() / "hpz.json";
    const auto read = [&](auto... options) {
        const char* arguments[] = {"zero3_gpt", options..., config.c_str()};
        int exit_code = 0;
        return zero3_gpt::read_settings(sizeof...(options) + 2, const_cast<char**>(arguments), true, exit_code).value();
    };
    for (const char* const seconds : {"0.0004", "0", "-1", "nan", "1e300"}) {
        CHECK_THROWS_WITH(read("--timeout", seconds),
                          Catch::Contains("--timeout: expected a number from 0.001 to 1e+09, given"));
    }
    CHECK(read("--timeout", "0.0016").timeout == std::chrono::milliseconds(2));
    for (const char* const rate : {"nan", "1.5"}) {
        CHECK_THROWS_WITH(read("--final-rate", rate), Catch::Contains("--final-rate: expected a number from 0 to 1"));
    }
    CHECK(read("--sites", "2").sites == 2);
    const std::string of_sites = samples() / "sites.json";
    CHECK(read(of_sites.c_str()).runs.front().config.warnings ==
          std::vector<std::string>{of_sites + ": zeropp.gradient_quantizer_inter_site is ignored: it has no effect "
                                              "without several --sites"});
    CHECK(read(of_sites.c_str(), "--sites", "2").runs.front().config.warnings.empty());
    for (const char* const option : {"--json", "--curve"}) {
        CHECK_THROWS_WITH(read(option, "/nonexistent/file"), option + std::string(": cannot write /nonexistent/file"));
    }
    CHECK_THROWS_WITH(read(config.c_str(), "--dump", "dumps"),
                      "--dump: expected configurations with different names, given several hpz");
    CHECK_THROWS_WITH(read("--sites", "2", "--timeout", "1"),
                      "--sites: expected 1 with --timeout or optimizer_mirror, which keep no sites, given 2");
}
