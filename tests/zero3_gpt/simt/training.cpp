/// \file
/// Whole trainings on the emulated GPU, ranks being threads: the losses of the host, bit for bit. Kernels, collectives
/// and cuBLAS's double add and multiply in the host's order.

#include "simt/cuda_emulation.hpp"

#include "../short_work.hpp"
#include "cuda_device.cuh"
#include "host_device.hpp"
#include "simt/cuda_doubles.hpp"
#include "support/catch.hpp"
#include "support/watchdog.hpp"
#include "trainer.hpp"

#include <chrono>

namespace {

namespace simt = zeropp_test::simt;
using namespace zero3_gpt;

/// As few as the trainings need: each pair of gradient formats is compiled twice.
struct formats : wire_formats {
    using weights =
        zeropp::named_quantizers<bf16, zeropp::block_integer<8, 256, zeropp::symmetric, zeropp::half>, int4_rotated>;
    using replicas = zeropp::named_quantizers<bf16>;
    using gradients = zeropp::named_hops<zeropp::hops<bf16, bf16>, zeropp::hops<int8, int4>>;
    using exchanges = zeropp::named_quantizers<int4_rotated>;
};

/// Three steps, with large ones so that every weight changes.
settings three_steps(deepspeed_config config) {
    config.train_micro_batch_size_per_gpu = 2;
    config.optimizer.lr = 0.02;
    config.optimizer.weight_decay = 0.1;
    settings s;
    s.runs.push_back({"emulated", std::move(config)});
    s.steps = 3;
    s.warmup_steps = 1;
    return s;
}

void check_training(const deepspeed_config& config, const zeropp::two_level& nodes) {
    const zeropp_test::watchdog guard(std::chrono::seconds(240), "a training on the emulated device");
    const settings s = three_steps(config);
    const workload work = short_work();
    pin_blas_to_one_thread();
    simt::set_device(4, 90);
    const simt::live_objects before = simt::live();
    const run_result expected = train_on_threads<host_device, formats>(s, work, nodes).front();
    const run_result given = train_on_threads<cuda_device, formats>(s, work, nodes).front();
    CHECK(simt::device_fault() == "");
    CHECK(simt::live() == before);
    CHECK(given.losses == expected.losses);
    CHECK(given.held_out_loss == expected.held_out_loss);
    CHECK(given.inter_node_bytes() == expected.inter_node_bytes());
    CHECK(given.intra_node_bytes() == expected.intra_node_bytes());
    CHECK(expected.losses.front() - expected.losses.back() > 0.1);
}

}  // namespace

TEST_CASE("training with all of ZeRO++ on 2 x 2 ranks", "[zero3_gpt][simt]") {
    deepspeed_config config;
    config.bf16 = true;
    config.gradient_clipping = 1.0;
    config.zero.quantized_weights = true;
    config.zero.hpz_partition_size = 2;
    config.zero.quantized_gradients = true;
    check_training(config, zeropp::two_level(2, 2));
}

TEST_CASE("training with plain ZeRO-3 and nothing overlapped, on 3 ranks", "[zero3_gpt][simt]") {
    deepspeed_config config;
    config.bf16 = true;
    config.zero.overlap_comm = false;
    check_training(config, zeropp::two_level(1, 3));
}

TEST_CASE("training with error feedback and differences of the weights that nodes keep", "[zero3_gpt][simt]") {
    deepspeed_config config;
    config.bf16 = true;
    config.zero.quantized_weights = true;
    config.zero.quantized_gradients = true;
    config.zero.hpz_partition_size = 2;
    config.zeropp.gradient_error_feedback = true;
    config.zeropp.weight_quantizer = "int4:128:signed:bf16:h32";
    config.zeropp.weight_differences = true;
    check_training(config, zeropp::two_level(2, 2));
}

TEST_CASE("training with local steps on two islands, in fragments that are used late", "[zero3_gpt][simt]") {
    deepspeed_config config;
    config.bf16 = true;
    config.zeropp.local_steps = {
        .islands = 2, .every = 2, .fragments = 2, .delay = 1, .alpha = 0.5, .quantizer = "int4:128:signed:bf16:h32"};
    check_training(config, zeropp::two_level(2, 2));
}
