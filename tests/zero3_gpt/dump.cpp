/// \file
/// What a run writes for others to measure: the weights as the ranks gathered them and one rank's own gradients.

#include "host_pass.hpp"
#include "short_work.hpp"
#include "support/catch.hpp"
#include "trainer.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using namespace zero3_gpt;
namespace fs = std::filesystem;

/// A folder of this process's own, gone with it.
struct folder {
    fs::path path = fs::temp_directory_path() / ("zero3_gpt_dump_" + std::to_string(std::random_device{}()));
    ~folder() { fs::remove_all(path); }
};

std::vector<float> read_floats(const fs::path& file) {
    std::vector<float> numbers(fs::file_size(file) / sizeof(float));
    std::ifstream in(file, std::ios::binary);
    in.read(reinterpret_cast<char*>(numbers.data()), static_cast<std::streamsize>(numbers.size() * sizeof(float)));
    REQUIRE(in);
    return numbers;
}

}  // namespace

TEST_CASE("a dump holds the step's weights and rank 0's own gradients, and training begins with its weights",
          "[zero3_gpt]") {
    const folder dumps;
    const model_config shape{.layers = 1, .heads = 2, .width = 16, .context = 8};
    const workload work = short_work(shape);
    settings s;
    s.runs.push_back({"plain", {}});
    s.runs.front().config.train_micro_batch_size_per_gpu = 2;
    s.steps = 2;
    s.dump_folder = (dumps.path / "made").string();
    s.dump_step = 1;
    pin_blas_to_one_thread();
    train_on_threads<host_device, few_formats>(s, work, zeropp::two_level(1, 2));

    // The first step's weights are the initial ones; its gradients are of rank 0's batch, whatever rank 1 has.
    std::vector<std::uint8_t> tokens(2 * 8);
    std::vector<std::uint8_t> targets(2 * 8);
    work.words.sample_batch(s.seed, 0, 0, 2, tokens, targets);
    const host_device device;
    pass batch(device, work.network, 2);
    std::vector<std::vector<float>> weights;
    batch.begin(tokens, targets);
    for (int u = 0; u != work.network.units(); ++u) {
        weights.emplace_back(work.network.unit_parameters(u));
        work.network.initialise(u, s.seed, weights.back());
        batch.forward(u, zeropp::host_view<const float>(weights.back().data(), weights.back().size()));
    }
    for (int u = work.network.units() - 1; u >= 0; --u) {
        const auto& own = weights[static_cast<std::size_t>(u)];
        std::vector<float> gradient(own.size());
        batch.backward(u, zeropp::host_view<const float>(own.data(), own.size()),
                       zeropp::host_view<float>(gradient.data(), gradient.size()));
        const std::string stem = s.dump_folder + "/plain." + std::to_string(u);
        CHECK(read_floats(stem + ".weights.fp32") == own);
        CHECK(read_floats(stem + ".gradients.fp32") == gradient);
    }
    CHECK(std::distance(fs::directory_iterator(s.dump_folder), fs::directory_iterator{}) == 2 * work.network.units());

    const model again(shape, s.dump_folder + "/plain");
    for (int u = 0; u != again.units(); ++u) {
        std::vector<float> begin(again.unit_parameters(u));
        again.initialise(u, s.seed + 1, begin);
        CHECK(begin == weights[static_cast<std::size_t>(u)]);
    }
    const std::string file = s.dump_folder + "/plain.1.weights.fp32";
    const auto size = fs::file_size(file);
    for (const auto wrong : {size - 1, size + 1}) {
        fs::resize_file(file, wrong);
        CHECK_THROWS_WITH(model(shape, s.dump_folder + "/plain"), "model: expected a file of " +
                                                                      std::to_string(again.unit_parameters(1)) +
                                                                      " weights in fp32, given " + file);
    }
    CHECK_THROWS_AS(model(shape, s.dump_folder + "/other"), std::invalid_argument);
}
