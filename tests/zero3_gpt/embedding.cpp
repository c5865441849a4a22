/// \file
/// Gradients of embeddings and head, which go in a format of their own, and blocks, which learn at a rate of their own.

#include "host_pass.hpp"
#include "short_work.hpp"
#include "support/catch.hpp"
#include "trainer.hpp"

#include <algorithm>
#include <cstddef>
#include <vector>

namespace {

using namespace zero3_gpt;

struct formats : wire_formats {
    using weights = zeropp::named_quantizers<bf16, fp32>;
    using replicas = zeropp::named_quantizers<bf16>;
    using gradients = zeropp::named_hops<hops<fp32, fp32>, hops<fp32, bf16>>;
    using exchanges = zeropp::named_quantizers<bf16>;
};

/// Result of a step, and for each unit whether it moved.
struct outcome {
    run_result result;
    std::vector<bool> moved;
};

outcome train_once(const deepspeed_config::zeropp_settings& names) {
    const workload work = short_work({.layers = 1, .heads = 2, .width = 16, .context = 8});
    settings s;
    s.steps = 1;
    run_settings run{"run", {}};
    run.config.zero.quantized_weights = true;
    run.config.zero.quantized_gradients = true;
    run.config.zeropp = names;
    pin_blas_to_one_thread();
    const zeropp::two_level nodes(2, 2);
    outcome first;
    zeropp::run_on_threads(nodes.size(), [&](zeropp::thread_transport ranks) {
        const host_device device;
        const bool speaks = ranks.rank() == 0;
        const auto result = train<formats>(device, s, run, work, ranks, nodes, [&](auto& engine, int, double) {
            if (!speaks) return;
            for (int u = 0; u != work.network.units(); ++u) {
                // This rank's slice of the first tensor is where the unit begins.
                std::vector<float> initial(work.network.unit_parameters(u));
                work.network.initialise(u, s.seed, initial);
                const auto own =
                    static_cast<std::ptrdiff_t>(zeropp::partition(work.network.tensors(u)[0].size, 4).size(0));
                first.moved.push_back(!std::equal(initial.begin(), initial.begin() + own, engine.masters(u).data()));
            }
        });
        if (speaks) first.result = result;
    });
    return first;
}

}  // namespace

TEST_CASE("gradients of embeddings and head go in a format of their own", "[zero3_gpt]") {
    deepspeed_config::zeropp_settings names;
    names.weight_quantizer = names.gradient_quantizer_intra_node = "fp32";
    const auto bytes = [&](const char* blocks, const char* embedding) {
        names.gradient_quantizer_inter_node = blocks;
        names.embedding_gradient_quantizer_inter_node = embedding;
        return train_once(names).result.traffic.reduce.inter_node;
    };
    const auto wide = bytes("fp32", ""), narrow = bytes("bf16", "");
    const auto blocks = bytes("fp32", "bf16"), embedding = bytes("bf16", "fp32");
    CHECK(bytes("fp32", "fp32") == wide);
    CHECK(blocks + embedding == wide + narrow);
    CHECK(wide > embedding);
    // Of the elements, more are the embeddings' and the head's.
    CHECK(embedding > blocks);
}

TEST_CASE("blocks learn at their rate", "[zero3_gpt]") {
    deepspeed_config::zeropp_settings names;
    names.weight_quantizer = names.gradient_quantizer_intra_node = names.gradient_quantizer_inter_node = "fp32";
    CHECK(train_once(names).moved == std::vector{true, true, true});
    names.block_rate = 1e-30;
    CHECK(train_once(names).moved == std::vector{true, false, true});
}
