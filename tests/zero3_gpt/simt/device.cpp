/// \file
/// What the model does on a device, on the emulated GPU: the bits of the host, kernel by kernel and unit by unit.

#include "simt/cuda_emulation.hpp"

#include "cuda_device.cuh"
#include "host_device.hpp"
#include "pass.hpp"
#include "random.hpp"
#include "simt/cuda_doubles.hpp"
#include "support/catch.hpp"
#include "zero3_gpt/simt/cublas_doubles.hpp"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

namespace {

namespace simt = zeropp_test::simt;
using zero3_gpt::array;
using zero3_gpt::cuda_device;
using zero3_gpt::host_device;

/// A device with few places for blocks, so that kernels have to come back for more.
cuda_device small_device() {
    simt::set_device(1, 80);
    return {};
}

/// What a device's array holds.
template <class Device, class T>
std::vector<T> contents(const Device& device, const array<T, typename Device::space>& from) {
    std::vector<T> values(from.size());
    device.download(std::span(values), from.data());
    return values;
}

template <class Device>
array<float, typename Device::space> on(const Device& device, const std::vector<float>& values) {
    array<float, typename Device::space> there(values.size());
    device.upload(there.data(), std::span<const float>(values));
    return there;
}

struct count_element {
    float* visits;
    ZEROPP_HOST_DEVICE void operator()(std::int64_t i) const { visits[i] += 1; }
};

/// visits [rows, width]
struct count_row {
    int width;
    float* visits;
    template <class Team>
    ZEROPP_HOST_DEVICE void operator()(const Team& team, int row) const {
        float* visit = visits + std::ptrdiff_t{row} * width;
        team.each(width, [=](int i) { visit[i] += 1; });
        const int again = row % width;
        team.at(again, [=] { visit[again] += 1; });
    }
};

/// Wrong unless the rows of a column come in order.
struct mix_column {
    int columns;
    float* mixed;
    ZEROPP_HOST_DEVICE void operator()(int row, int column) const {
        mixed[column] = 0.5F * mixed[column] + static_cast<float>(row * 31 % 97 + column);
    }
};

struct row_results {
    int width;
    const float* x;
    float* sums;
    float* largest;
    template <class Team>
    ZEROPP_HOST_DEVICE void operator()(const Team& team, int row) const {
        const float* in = x + std::ptrdiff_t{row} * width;
        const int count = row % width + 1;
        const float sum = team.sum(count, [=](int i) { return in[i]; });
        const float most = zero3_gpt::step::largest_of(team, count, in);
        team.at(count - 1, [=, this] {
            sums[row] = sum;
            largest[row] = most;
        });
    }
};

/// The weights, far from their first values, and tokens of a model.
struct experiment {
    explicit experiment(zero3_gpt::model_config config, std::size_t windows) : network(config) {
        for (int unit = 0; unit != network.units(); ++unit) {
            auto& values = weights.emplace_back(network.unit_parameters(unit));
            network.initialise(unit, 7, values);
            for (std::size_t i = 0; i != values.size(); ++i) {
                values[i] += 0.3F * zero3_gpt::random_normal(8, static_cast<std::uint64_t>(unit), i);
            }
        }
        for (std::size_t i = 0; i != windows * static_cast<std::size_t>(config.context); ++i) {
            tokens.push_back(static_cast<std::uint8_t>(zero3_gpt::random_bits(9, 0, i) % 256));
            targets.push_back(static_cast<std::uint8_t>(zero3_gpt::random_bits(9, 1, i) % 256));
        }
    }

    /// The loss, then every unit's gradient.
    template <class Device>
    std::vector<std::vector<float>> step(const Device& device) const {
        std::vector<array<float, typename Device::space>> there;
        for (const auto& values : weights) there.push_back(on(device, values));
        zero3_gpt::pass<Device> batch(device, network, 9);
        batch.begin(tokens, targets);
        for (int unit = 0; unit != network.units(); ++unit) batch.forward(unit, of(there, unit).view());
        std::vector<std::vector<float>> results{{batch.loss()}};
        for (int unit = network.units() - 1; unit >= 0; --unit) {
            array<float, typename Device::space> gradient(of(there, unit).size());
            batch.backward(unit, of(there, unit).view(), gradient.view());
            results.push_back(contents(device, gradient));
        }
        return results;
    }

    template <class T>
    static const T& of(const std::vector<T>& arrays, int unit) {
        return arrays[static_cast<std::size_t>(unit)];
    }

    zero3_gpt::model network;
    std::vector<std::vector<float>> weights;
    std::vector<std::uint8_t> tokens;
    std::vector<std::uint8_t> targets;
};

}  // namespace

TEST_CASE("a kernel visits everything once, and columns in order of their rows", "[zero3_gpt][simt]") {
    const cuda_device device = small_device();
    const host_device host;
    const auto zeros = [](std::size_t n) { return std::vector<float>(n); };

    const auto elements = on(device, zeros(10'007));
    device.for_each(10'006, count_element{elements.data()});
    auto expected = std::vector<float>(10'007, 1.0F);
    expected.back() = 0.0F;
    CHECK(contents(device, elements) == expected);

    constexpr int rows = 300;
    constexpr int width = 37;
    const auto visits = on(device, zeros(rows * width));
    device.for_each_row(rows, count_row{width, visits.data()});
    const auto on_host = on(host, zeros(rows * width));
    host.for_each_row(rows, count_row{width, on_host.data()});
    CHECK(contents(device, visits) == contents(host, on_host));

    constexpr int columns = 2500;
    const auto mixed = on(device, zeros(columns + 1));
    device.for_each_column(7, columns, mix_column{columns, mixed.data()});
    const auto mixed_on_host = on(host, zeros(columns + 1));
    host.for_each_column(7, columns, mix_column{columns, mixed_on_host.data()});
    CHECK(contents(device, mixed) == contents(host, mixed_on_host));
    CHECK(simt::device_fault() == "");
}

TEST_CASE("a team of lanes has the bits of the loop", "[zero3_gpt][simt]") {
    const cuda_device device = small_device();
    const host_device host;
    constexpr int rows = 150;
    constexpr int width = 75;
    std::vector<float> values(rows * width);
    for (std::size_t i = 0; i != values.size(); ++i) values[i] = zero3_gpt::random_normal(5, 0, i);
    const auto run = [&](const auto& on_which) {
        const auto x = on(on_which, values);
        const auto sums = on(on_which, std::vector<float>(rows));
        const auto largest = on(on_which, std::vector<float>(rows));
        on_which.for_each_row(rows, row_results{width, x.data(), sums.data(), largest.data()});
        return std::vector{contents(on_which, sums), contents(on_which, largest)};
    };
    CHECK(run(device) == run(host));
}

TEST_CASE("losses and gradients on the device have the bits of the host", "[zero3_gpt][simt]") {
    const auto [config, windows] = GENERATE(
        table<zero3_gpt::model_config, std::size_t>({{{.layers = 2, .heads = 2, .width = 8, .context = 5}, 2},
                                                     {{.layers = 1, .heads = 1, .width = 19, .context = 3}, 1},
                                                     {{.layers = 1, .heads = 3, .width = 36, .context = 18}, 8}}));
    CAPTURE(config.width);
    zero3_gpt::pin_blas_to_one_thread();
    const experiment trial(config, windows);
    const simt::live_objects before = simt::live();
    {
        const cuda_device device = small_device();
        const auto given = trial.step(device);
        const auto expected = trial.step(host_device{});
        REQUIRE(given.size() == expected.size());
        for (std::size_t i = 0; i != given.size(); ++i) {
            CAPTURE(i);
            CHECK(std::memcmp(given[i].data(), expected[i].data(), given[i].size() * sizeof(float)) == 0);
        }
        CHECK(simt::live_cublas_handles() == 1);
    }
    CHECK(simt::device_fault() == "");
    CHECK(simt::live() == before);
    CHECK(simt::live_cublas_handles() == 0);
}

TEST_CASE("what fails on the device is raised with its own text", "[zero3_gpt][simt]") {
    const auto message_of = [](auto action) -> std::string {
        try {
            action();
        } catch (const zeropp::error& e) {
            return e.what();
        }
        return "";
    };
    simt::fail_next("cudaGetDeviceCount", cudaErrorNoDevice);
    CHECK(message_of([] { zero3_gpt::gpus_here(); }) ==
          "--device cuda: there is no GPU here (no CUDA-capable device is detected)");
    CHECK(zero3_gpt::gpus_here() == 1);

    const cuda_device device = small_device();
    const auto a = on(device, std::vector<float>(6));
    const auto c = on(device, std::vector<float>(4));
    const auto multiply = [&] {
        device.multiply({.rows = 2, .columns = 2, .inner = 3}, {.data = a.data(), .stride = 3},
                        {.data = a.data(), .stride = 2}, {.data = c.data(), .stride = 2});
    };
    CHECK(message_of(multiply) == "");
    simt::fail_next_product(CUBLAS_STATUS_EXECUTION_FAILED);
    CHECK(message_of(multiply) == "cublasSgemmStridedBatched: CUBLAS_STATUS_EXECUTION_FAILED, the function failed to "
                                  "launch on the GPU");
    simt::fail_next("cudaLaunchKernel", cudaErrorLaunchFailure);
    CHECK_THROWS_AS(device.for_each(4, count_element{c.data()}), zeropp::cuda_error);
    simt::fail_next("cudaMemcpyAsync", cudaErrorIllegalAddress);
    CHECK_THROWS_AS(contents(device, c), zeropp::cuda_error);
    // And is over with it; the arrays go when all work on them is done.
    CHECK(contents(device, c) == std::vector<float>(4));
}
