/// \file
/// Islands train apart between exchanges and are equal after them; one island is training without local steps.

#include "local_steps.hpp"

#include "host_pass.hpp"
#include "support/catch.hpp"
#include "trainer.hpp"

#include <cstddef>
#include <string>
#include <vector>

namespace {

using namespace zero3_gpt;

struct formats : wire_formats {
    using weights = zeropp::named_quantizers<bf16>;
    using replicas = zeropp::named_quantizers<bf16>;
    using gradients = zeropp::named_hops<hops<bf16, bf16>>;
    using exchanges = zeropp::named_quantizers<int4_rotated>;
};

/// Master weights of a unit after each step, for each rank; and the result of rank 0.
struct training {
    std::vector<std::vector<std::vector<float>>> masters;
    run_result result;
};

training train_islands(const deepspeed_config::local_settings& local, int stage, int watched_unit) {
    std::string words;
    for (int i = 0; words.size() < 300; ++i) words += "line " + std::to_string(i * i) + " of a short text; ";
    const model network({.layers = 2, .heads = 2, .width = 16, .context = 8});
    const workload work(network, text(words, network.config().context));
    settings s;
    s.steps = 9;
    run_settings run{"run", {}};
    run.config.bf16 = true;
    run.config.zero.stage = stage;
    run.config.zeropp.local_steps = local;
    pin_blas_to_one_thread();
    const zeropp::two_level nodes(4, 1);
    training t;
    t.masters.resize(4);
    zeropp::run_on_threads(nodes.size(), [&](zeropp::thread_transport ranks) {
        const host_device device;
        const auto rank = static_cast<std::size_t>(ranks.rank());
        const auto keep = [&](auto& engine, int, double) {
            const auto own = engine.masters(watched_unit);
            t.masters[rank].emplace_back(own.data(), own.data() + own.size());
        };
        const run_result result = train<formats>(device, s, run, work, ranks, nodes, keep);
        if (rank == 0) t.result = result;
    });
    return t;
}

deepspeed_config::local_settings every_four(int fragments, int delay) {
    deepspeed_config::local_settings local;
    local.islands = 2;
    local.every = 4;
    local.fragments = fragments;
    local.delay = delay;
    local.quantizer = "int4:128:signed:bf16:h32";
    return local;
}

/// Steps, counted from 1, after which counterparts of both islands hold equal weights.
std::vector<int> equal_steps(const training& t) {
    std::vector<int> steps;
    for (std::size_t step = 0; step != t.masters[0].size(); ++step) {
        const bool first = t.masters[0][step] == t.masters[2][step];
        REQUIRE(first == (t.masters[1][step] == t.masters[3][step]));
        if (first) steps.push_back(static_cast<int>(step) + 1);
    }
    return steps;
}

}  // namespace

TEST_CASE("islands are equal after each exchange, in ZeRO-3 and in data parallelism", "[zero3_gpt]") {
    for (const int stage : {3, 0}) {
        CAPTURE(stage);
        const training t = train_islands(every_four(1, 0), stage, 1);
        CHECK(equal_steps(t) == std::vector{4, 8});
        CHECK(t.masters[0][3] != t.masters[0][7]);
        CHECK(t.result.traffic.exchange.inter_node > 0);
        CHECK(t.result.traffic.exchange.intra_node == 0);
    }
}

TEST_CASE("fragments exchange in turn, and are used after their delay", "[zero3_gpt]") {
    // Of 4 units in 2 fragments, units 0 and 2 begin after steps 2 and 6, units 1 and 3 after steps 4 and 8.
    CHECK(equal_steps(train_islands(every_four(2, 0), 3, 2)) == std::vector{2, 6});
    CHECK(equal_steps(train_islands(every_four(2, 0), 3, 3)) == std::vector{4, 8});
    CHECK(equal_steps(train_islands(every_four(2, 1), 3, 2)) == std::vector{3, 7});
    CHECK(equal_steps(train_islands(every_four(2, 3), 3, 3)) == std::vector{7});
}

TEST_CASE("one island trains as without local steps", "[zero3_gpt]") {
    deepspeed_config::local_settings one;
    const training t = train_islands(one, 3, 1);
    one.every = 2;
    one.quantizer = "int4:128:signed:bf16:h32";
    const training other = train_islands(one, 3, 1);
    CHECK(t.masters == other.masters);
    CHECK(t.result.losses == other.result.losses);
    CHECK(t.result.traffic.exchange.inter_node == 0);
}

TEST_CASE("ranks that islands do not divide are refused", "[zero3_gpt]") {
    deepspeed_config::local_settings local = every_four(1, 0);
    local.islands = 3;
    CHECK_THROWS_WITH(train_islands(local, 3, 1), "local_steps.islands: expected a divisor of the 4 ranks, given 3");
}
