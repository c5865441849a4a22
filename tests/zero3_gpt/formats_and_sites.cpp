/// \file
/// Gradients that go in a format of their own: of embeddings and head, and between sites. Blocks, which learn at a rate
/// of their own. Weights that move as exact differences.

#include "host_pass.hpp"
#include "short_work.hpp"
#include "support/catch.hpp"
#include "trainer.hpp"

#include <zeropp/plan/step.hpp>
#include <zeropp/topology/three_level.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace {

using namespace zero3_gpt;

constexpr model_config one_block{.layers = 1, .heads = 2, .width = 16, .context = 8};

/// A training without quantizers, but for the names.
struct setting {
    zeropp::three_level nodes = zeropp::two_level(2, 2);
    int stage = 3;
    int secondary_group = 1;
    int steps = 1;
    double learning_rate = 1e-3;
};

/// Result of a training; for each step and unit whether it has moved; and rank 0's masters after the last step.
struct outcome {
    run_result result;
    std::vector<bool> moved;
    std::vector<std::vector<float>> masters;
};

outcome train_on(const setting& c, const deepspeed_config::zeropp_settings& names) {
    const workload work = short_work(one_block);
    settings s;
    s.steps = c.steps;
    run_settings run{"run", {}};
    run.config.zero.stage = c.stage;
    run.config.zero.hpz_partition_size = c.secondary_group;
    run.config.zero.quantized_weights = c.stage == 3;
    run.config.zero.quantized_gradients = true;
    run.config.optimizer.lr = c.learning_rate;
    run.config.zeropp = names;
    pin_blas_to_one_thread();
    outcome first;
    zeropp::run_on_threads(c.nodes.size(), [&](zeropp::thread_transport ranks) {
        const host_device device;
        const bool speaks = ranks.rank() == 0;
        const auto result = train<few_formats>(device, s, run, work, ranks, c.nodes, [&](auto& engine, int, double) {
            if (!speaks) return;
            first.masters.clear();
            for (int u = 0; u != work.network.units(); ++u) {
                // This rank's slice of the first tensor is where the unit begins.
                std::vector<float> initial(work.network.unit_parameters(u));
                work.network.initialise(u, s.seed, initial);
                const zeropp::partition part(work.network.tensors(u)[0].size, c.stage == 0 ? 1 : c.nodes.size());
                const auto own = static_cast<std::ptrdiff_t>(part.size(0));
                const zeropp::host_view<const float> masters = engine.masters(u);
                first.moved.push_back(!std::equal(initial.begin(), initial.begin() + own, masters.data()));
                first.masters.emplace_back(masters.data(), masters.data() + masters.size());
            }
        });
        if (speaks) first.result = result;
    });
    return first;
}

outcome train_once(const deepspeed_config::zeropp_settings& names) { return train_on({}, names); }

deepspeed_config::zeropp_settings names_of(const char* weights, const char* gradients, const char* inter_site = "") {
    deepspeed_config::zeropp_settings names;
    names.weight_quantizer = weights;
    names.gradient_quantizer_intra_node = names.gradient_quantizer_inter_node = gradients;
    names.gradient_quantizer_inter_site = inter_site;
    return names;
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

TEST_CASE("over sites, a training sends the planned bytes along each level", "[zero3_gpt]") {
    const zeropp::three_level planned(2, 2, 2);
    const zeropp::wire_format fp32 = zeropp::wire_format_of(few_formats::fp32{}),
                              bf16 = zeropp::wire_format_of(few_formats::bf16{});
    const zeropp::step_options zero3{.weights = bf16, .gradients = {fp32, fp32, bf16}};
    zeropp::step_options hpz = zero3, differences = zero3;
    hpz.secondary = zeropp::secondary_options{2, bf16};
    differences.replicas = bf16;
    const model network(one_block);
    // Elements of a tensor with messages as long as those of a unit's list, whose tensors begin at multiples of 32.
    const auto as_one_tensor = [&](int unit, int ranks) {
        std::size_t shard = 0;
        for (const unit_tensor& t : network.tensors(unit)) {
            shard = (shard + 31) / 32 * 32 + zeropp::partition(t.size, ranks).slice_size();
        }
        return std::vector{shard * static_cast<std::size_t>(ranks)};
    };
    const auto bytes = [](const zeropp::volume& v) { return std::array{v.intra_node, v.inter_node, v.inter_site}; };
    for (const zeropp::step_options& options : {zero3, hpz, differences}) {
        zeropp::step_volume sent;
        for (int u = 0; u != network.units(); ++u) {
            const zeropp::step_volume of_unit = zeropp::volume_of_step(planned, as_one_tensor(u, 8), options);
            sent.forward += of_unit.forward;
            sent.backward +=
                zeropp::volume_of_step(planned, as_one_tensor(u, options.secondary ? 2 : 8), options).backward;
            sent.gradients += of_unit.gradients;
        }
        deepspeed_config::zeropp_settings names = names_of("bf16", "fp32", "bf16");
        names.weight_differences = options.replicas.has_value();
        const bool kept = options.secondary || options.replicas;
        const phase_traffic given =
            train_on({.nodes = in_sites(2, zeropp::two_level(4, 2)), .secondary_group = kept ? 2 : 1}, names)
                .result.traffic;
        const auto ranks = static_cast<std::uint64_t>(planned.size());
        CHECK(bytes(given.forward_gather) == bytes(sent.forward * ranks));
        CHECK(bytes(given.backward_gather) == bytes(sent.backward * ranks));
        CHECK(bytes(given.reduce) == bytes(sent.gradients * ranks));
        CHECK(given.total().inter_site > 0);
    }
}

TEST_CASE("exact differences train as whole weights in bf16, to the bit, and send fewer bytes", "[zero3_gpt]") {
    deepspeed_config::zeropp_settings whole = names_of("bf16", "fp32"), exact = names_of("exact", "fp32");
    exact.weight_differences = true;
    for (const zeropp::three_level& nodes :
         {in_sites(1, zeropp::two_level(2, 2)), in_sites(2, zeropp::two_level(4, 2))}) {
        CAPTURE(nodes.extent(2));
        setting c{.nodes = nodes, .steps = 8, .learning_rate = 1e-4};
        const outcome of_whole = train_on(c, whole);
        c.secondary_group = 2;
        const outcome of_exact = train_on(c, exact);
        CHECK(of_exact.result.losses == of_whole.result.losses);
        CHECK(of_exact.result.held_out_loss == of_whole.result.held_out_loss);
        CHECK(of_exact.masters == of_whole.masters);
        const zeropp::volume sent = of_exact.result.traffic.forward_gather,
                             before = of_whole.result.traffic.forward_gather;
        CHECK(sent.inter_node < before.inter_node * 3 / 4);
        CHECK(sent.inter_site <= before.inter_site * 3 / 4);
        CHECK(of_exact.result.traffic.backward_gather.inter_node == 0);
    }
}

TEST_CASE("sites change the order of sums alone", "[zero3_gpt]") {
    const deepspeed_config::zeropp_settings exact = names_of("fp32", "fp32");
    for (const int stage : {3, 0}) {
        CAPTURE(stage);
        const auto losses = [&](const zeropp::three_level& nodes) {
            return train_on({.nodes = nodes, .stage = stage, .steps = 4}, exact).result.losses;
        };
        // Sites of two nodes are summed as nodes of two ranks, and a site of one node as that node.
        const std::vector<double> four = losses(zeropp::two_level(2, 2));
        CHECK(losses(in_sites(2, zeropp::two_level(4, 1))) == four);
        CHECK(losses(in_sites(2, zeropp::two_level(2, 2))) == four);
        const std::vector<double> sites = losses(in_sites(2, zeropp::two_level(4, 2))),
                                  nodes = losses(zeropp::two_level(4, 2));
        CHECK(sites.front() == nodes.front());
        for (std::size_t step = 0; step != nodes.size(); ++step) CHECK(std::abs(sites[step] - nodes[step]) < 1e-5);
    }
}

TEST_CASE("islands may be sites, which exchange over the links between them alone", "[zero3_gpt]") {
    deepspeed_config::zeropp_settings names = names_of("fp32", "fp32");
    names.local_steps = local_settings{.islands = 2, .every = 1};
    const phase_traffic sent = train_on({.nodes = in_sites(2, zeropp::two_level(4, 1))}, names).result.traffic;
    CHECK(sent.exchange.inter_site > 0);
    CHECK(sent.total().inter_site == sent.exchange.inter_site);
    CHECK(sent.exchange.inter_node == 0);
    // Islands of two sites each.
    names.local_steps->islands = 1;
    CHECK(train_on({.nodes = in_sites(2, zeropp::two_level(4, 1))}, names).result.traffic.reduce.inter_site > 0);
    names.local_steps->islands = 3;
    CHECK_THROWS_WITH(train_on({.nodes = in_sites(2, zeropp::two_level(6, 1))}, names),
                      "local_steps.islands: expected a divisor or a multiple of the 2 sites, given 3");
}

TEST_CASE("nodes are divided over sites, and into groups, exactly or not at all", "[zero3_gpt]") {
    CHECK(in_sites(2, zeropp::two_level(6, 2)) == zeropp::three_level(2, 3, 2));
    const zeropp::two_level unequal = zeropp::two_level::of_nodes({1, 3, 2});
    CHECK(in_sites(1, unequal) == zeropp::three_level(unequal));
    const auto refused = [](int sites, const zeropp::two_level& nodes, const std::string& problem) {
        CHECK_THROWS_WITH(in_sites(sites, nodes), "sites: expected " + problem);
    };
    refused(3, zeropp::two_level(4, 2), "a divisor of the 4 nodes, given 3");
    refused(0, zeropp::two_level(4, 2), "a divisor of the 4 nodes, given 0");
    const std::string equal = "nodes of equal numbers of consecutive ranks, given ";
    refused(2, zeropp::two_level::of_nodes({2, 2, 1, 1}), equal + "4 groups of 2, 2, 1, 1 ranks");
    refused(2, zeropp::two_level(std::vector{0, 1, 0, 1}), equal + "2 groups of 2 ranks, not all consecutive");
    CHECK(in_groups(4, zeropp::three_level(2, 2, 2)) == zeropp::three_level(2, 1, 4));
    CHECK_THROWS_WITH(in_groups(8, zeropp::three_level(2, 2, 2)),
                      "zero_hpz_partition_size: expected a divisor of the 4 ranks of a site, given 8");
}
