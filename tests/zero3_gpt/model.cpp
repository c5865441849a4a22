#include "model.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numbers>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "adamw.hpp"
#include "host_device.hpp"
#include "layers.hpp"
#include "pass.hpp"
#include "random.hpp"
#include "support/catch.hpp"
#include "support/expectations.hpp"
#include "support/host_targets.hpp"

namespace {

using zero3_gpt::model;
using zero3_gpt::model_config;
using zero3_gpt::vocabulary;
using zeropp_test::contains;
using zeropp_test::thrown;

using pass = zero3_gpt::pass<zero3_gpt::host_device>;

const zero3_gpt::host_device device;

std::size_t decayed(const model& network, int unit) {
    std::size_t elements = 0;
    for (const zero3_gpt::unit_tensor& t : network.tensors(unit)) elements += t.decayed;
    return elements;
}

using bytes = std::vector<std::uint8_t>;
using unit_arrays = std::vector<std::vector<float>>;

/// The forward loss written down from the definition: double precision, plain loops, no BLAS, nothing shared with the
/// model but the documented order of the parameters.
class reference {
public:
    reference(model_config config, const bytes& tokens, const bytes& targets)
        : layers_{size(config.layers)}, heads_{size(config.heads)}, width_{size(config.width)},
          context_{size(config.context)}, tokens_{tokens}, targets_{targets} {}

    double loss(const std::vector<std::vector<double>>& units) const {
        double sum = 0.0;
        for (std::size_t first = 0; first < tokens_.size(); first += context_) sum += window_loss(units, first);
        return sum / static_cast<double>(tokens_.size());
    }

private:
    using row = std::vector<double>;
    using rows = std::vector<row>;

    static std::size_t size(int value) { return static_cast<std::size_t>(value); }

    static row times(const row& x, const double* weight, const double* bias, std::size_t out) {
        row y(out);
        for (std::size_t j = 0; j < out; ++j) {
            y[j] = bias == nullptr ? 0.0 : bias[j];
            for (std::size_t i = 0; i < x.size(); ++i) y[j] += x[i] * weight[i * out + j];
        }
        return y;
    }

    static row norm(const row& x, const double* gain, const double* bias) {
        const auto count = static_cast<double>(x.size());
        double mean = 0.0;
        for (const double value : x) mean += value / count;
        double variance = 0.0;
        for (const double value : x) variance += (value - mean) * (value - mean) / count;
        row y(x.size());
        for (std::size_t i = 0; i < x.size(); ++i)
            y[i] = (x[i] - mean) / std::sqrt(variance + 1e-5) * gain[i] + bias[i];
        return y;
    }

    static row softmax(row x) {
        double sum = 0.0;
        for (double& value : x) sum += value = std::exp(value);
        for (double& value : x) value /= sum;
        return x;
    }

    double window_loss(const std::vector<std::vector<double>>& units, std::size_t first) const {
        rows stream(context_, row(width_));
        for (std::size_t t = 0; t < context_; ++t) {
            for (std::size_t i = 0; i < width_; ++i) {
                stream[t][i] = units[0][tokens_[first + t] * width_ + i] + units[0][(vocabulary + t) * width_ + i];
            }
        }
        for (std::size_t layer = 1; layer <= layers_; ++layer) block(units[layer].data(), stream);

        const double* head = units[layers_ + 1].data();
        const double* gain = head + width_ * vocabulary;
        double sum = 0.0;
        for (std::size_t t = 0; t < context_; ++t) {
            const row probability = softmax(times(norm(stream[t], gain, gain + width_), head, nullptr, vocabulary));
            sum -= std::log(probability[targets_[first + t]]);
        }
        return sum;
    }

    void block(const double* weights, rows& stream) const {
        const std::size_t square = width_ * width_;
        const double* qkv_weight = weights;
        const double* out_weight = qkv_weight + 3 * square;
        const double* mlp_in_weight = out_weight + square;
        const double* mlp_out_weight = mlp_in_weight + 4 * square;
        const double* qkv_bias = mlp_out_weight + 4 * square;
        const double* out_bias = qkv_bias + 3 * width_;
        const double* mlp_in_bias = out_bias + width_;
        const double* mlp_out_bias = mlp_in_bias + 4 * width_;
        const double* norm1 = mlp_out_bias + width_;
        const double* norm2 = norm1 + 2 * width_;

        rows qkv;
        for (const row& x : stream)
            qkv.push_back(times(norm(x, norm1, norm1 + width_), qkv_weight, qkv_bias, 3 * width_));
        const std::size_t head_width = width_ / heads_;
        for (std::size_t t = 0; t < context_; ++t) {
            row attended(width_);
            for (std::size_t first = 0; first < width_; first += head_width) {
                row score(t + 1);
                for (std::size_t s = 0; s <= t; ++s) {
                    for (std::size_t i = first; i < first + head_width; ++i) score[s] += qkv[t][i] * qkv[s][width_ + i];
                    score[s] /= std::sqrt(static_cast<double>(head_width));
                }
                score = softmax(score);
                for (std::size_t s = 0; s <= t; ++s) {
                    for (std::size_t i = first; i < first + head_width; ++i)
                        attended[i] += score[s] * qkv[s][2 * width_ + i];
                }
            }
            add(times(attended, out_weight, out_bias, width_), stream[t]);
        }
        for (row& x : stream) {
            row hidden = times(norm(x, norm2, norm2 + width_), mlp_in_weight, mlp_in_bias, 4 * width_);
            for (double& h : hidden) {
                h = 0.5 * h * (1.0 + std::tanh(std::sqrt(2.0 / std::numbers::pi) * (h + 0.044715 * h * h * h)));
            }
            add(times(hidden, mlp_out_weight, mlp_out_bias, width_), x);
        }
    }

    static void add(const row& x, row& to) {
        for (std::size_t i = 0; i < x.size(); ++i) to[i] += x[i];
    }

    std::size_t layers_;
    std::size_t heads_;
    std::size_t width_;
    std::size_t context_;
    bytes tokens_;
    bytes targets_;
};

/// A model whose weights are far from their initial values, so that no term of a gradient is negligible.
struct experiment {
    explicit experiment(model_config config, std::size_t windows = 2) : network{config} {
        for (int unit = 0; unit < network.units(); ++unit) {
            auto& unit_weights = weights.emplace_back(network.unit_parameters(unit));
            network.initialise(unit, 7, unit_weights);
            for (std::size_t i = 0; i < unit_weights.size(); ++i) {
                unit_weights[i] += 0.3F * zero3_gpt::random_normal(8, static_cast<std::uint64_t>(unit), i);
            }
            gradients.emplace_back(unit_weights.size(), std::numeric_limits<float>::quiet_NaN());
        }
        for (std::size_t i = 0; i <= windows * static_cast<std::size_t>(config.context); ++i) {
            const auto byte = static_cast<std::uint8_t>(zero3_gpt::random_bits(9, 0, i) % 11 * 25);
            tokens.push_back(byte);
            targets.push_back(byte);
        }
        tokens.pop_back();
        targets.erase(targets.begin());
    }

    float step(pass& batch) {
        batch.begin(tokens, targets);
        for (int unit = 0; unit < network.units(); ++unit) batch.forward(unit, of(weights, unit));
        const float loss = batch.loss();
        for (int unit = network.units() - 1; unit >= 0; --unit) {
            batch.backward(unit, of(weights, unit), of(gradients, unit));
        }
        return loss;
    }

    static std::vector<float>& of(unit_arrays& arrays, int unit) { return arrays[static_cast<std::size_t>(unit)]; }

    model network;
    unit_arrays weights;
    unit_arrays gradients;
    bytes tokens;
    bytes targets;
};

constexpr model_config tiny{.layers = 2, .heads = 2, .width = 8, .context = 5};

}  // namespace

TEST_CASE("loss and gradients agree with a plain double-precision model", "[zero3_gpt][model]") {
    // Widths off the lane count of the row sums, and one head as well as several.
    const auto config = GENERATE(values<model_config>({tiny,
                                                       {.layers = 1, .heads = 1, .width = 19, .context = 3},
                                                       {.layers = 1, .heads = 3, .width = 36, .context = 18}}));
    CAPTURE(config.width);
    experiment trial{config};
    pass batch{device, trial.network, 2};
    const float loss = trial.step(batch);

    const reference plain{config, trial.tokens, trial.targets};
    std::vector<std::vector<double>> weights;
    for (const auto& unit : trial.weights) weights.emplace_back(unit.begin(), unit.end());
    CHECK(std::abs(static_cast<double>(loss) - plain.loss(weights)) < 2e-6);

    // A sample spread over each unit, over its rows and its columns.
    for (int unit = 0; unit < trial.network.units(); ++unit) {
        const auto& gradient = experiment::of(trial.gradients, unit);
        auto& unit_weights = weights[static_cast<std::size_t>(unit)];
        const auto magnitude = [](float a, float b) { return std::abs(a) < std::abs(b); };
        const auto scale = static_cast<double>(std::abs(*std::ranges::max_element(gradient, magnitude)));
        const std::size_t stride = config.width == tiny.width ? 3 : 53;
        double worst = 0.0;
        for (std::size_t i = 0; i < gradient.size(); i += stride) {
            // An embedding that does not occur has a gradient of exactly zero; no need to ask the reference.
            const std::size_t row = i / static_cast<std::size_t>(config.width);
            if (unit == 0 && row < vocabulary && std::ranges::find(trial.tokens, row) == trial.tokens.end()) {
                worst = std::max(worst, static_cast<double>(std::abs(gradient[i])));
                continue;
            }
            constexpr double h = 1e-4;
            const double weight = unit_weights[i];
            unit_weights[i] = weight + h;
            const double above = plain.loss(weights);
            unit_weights[i] = weight - h;
            const double below = plain.loss(weights);
            unit_weights[i] = weight;
            worst = std::max(worst, std::abs((above - below) / (2 * h) - static_cast<double>(gradient[i])));
        }
        CAPTURE(unit, scale, worst);
        CHECK(worst < 5e-6 * scale);
        CHECK(scale > 1e-4);
    }
}

TEST_CASE("a pass has the same bits every time and leaves nothing behind", "[zero3_gpt][model]") {
    zero3_gpt::pin_blas_to_one_thread();
    experiment first{tiny};
    pass batch{device, first.network, 3};
    const float loss = first.step(batch);

    SECTION("in a fresh pass") {
        experiment second{tiny};
        pass fresh{device, second.network, 2};
        CHECK(second.step(fresh) == loss);
        CHECK(second.gradients == first.gradients);
    }
    SECTION("in vectors of any width") {
        zeropp_test::on_every_target([&] {
            experiment second{tiny};
            CHECK(second.step(batch) == loss);
            CHECK(second.gradients == first.gradients);
        });
    }
    SECTION("after a larger micro-batch") {
        experiment larger{tiny, 3};
        CHECK(larger.step(batch) != loss);
        experiment second{tiny};
        CHECK(second.step(batch) == loss);
        CHECK(second.gradients == first.gradients);
    }
}

TEST_CASE("the mean over two micro-batches is the mean of their means", "[zero3_gpt][model]") {
    experiment both{tiny};
    pass batch{device, both.network, 2};
    const float loss = both.step(batch);
    float sum = 0.0F;
    std::vector<double> gradient(both.gradients[1].size());
    for (std::size_t window = 0; window < 2; ++window) {
        experiment one{tiny};
        const auto first = static_cast<std::ptrdiff_t>(window * tiny.context);
        one.tokens = bytes(both.tokens.begin() + first, both.tokens.begin() + first + tiny.context);
        one.targets = bytes(both.targets.begin() + first, both.targets.begin() + first + tiny.context);
        sum += one.step(batch);
        for (std::size_t i = 0; i < gradient.size(); ++i) gradient[i] += 0.5 * static_cast<double>(one.gradients[1][i]);
    }
    CHECK(std::abs(loss - 0.5F * sum) < 2e-6F);
    for (std::size_t i = 0; i < gradient.size(); ++i) {
        REQUIRE(std::abs(gradient[i] - static_cast<double>(both.gradients[1][i])) < 1e-6);
    }
}

TEST_CASE("a rank without windows has no loss and zero gradients", "[zero3_gpt][model]") {
    experiment trial{tiny};
    pass batch{device, trial.network, 2};
    trial.tokens.clear();
    trial.targets.clear();
    CHECK(trial.step(batch) == 0.0F);
    for (const auto& gradient : trial.gradients) {
        CHECK(std::ranges::all_of(gradient, [](float value) { return value == 0.0F; }));
    }
}

TEST_CASE("a NaN weight reaches the loss", "[zero3_gpt][model]") {
    experiment trial{tiny};
    pass batch{device, trial.network, 2};
    const auto unit = static_cast<std::size_t>(GENERATE(0, 1, 2, 3));
    // In unit 0 the row of a byte that occurs.
    trial.weights[unit][unit == 0 ? trial.tokens[0] * std::size_t{8} : 0] = std::numeric_limits<float>::quiet_NaN();
    CHECK(std::isnan(trial.step(batch)));
}

TEST_CASE("fifty steps learn a short text", "[zero3_gpt][model]") {
    const model network{{.layers = 1, .heads = 2, .width = 32, .context = 32}};
    constexpr std::string_view phrase = "the quick brown fox jumps over the lazy dog. ";
    bytes tokens;
    bytes targets;
    for (std::size_t i = 0; i < 128; ++i) {
        tokens.push_back(static_cast<std::uint8_t>(phrase[i % phrase.size()]));
        targets.push_back(static_cast<std::uint8_t>(phrase[(i + 1) % phrase.size()]));
    }
    unit_arrays weights;
    std::vector<zero3_gpt::adamw<zero3_gpt::host_device>> optimizers;
    for (int unit = 0; unit < network.units(); ++unit) {
        network.initialise(unit, 1, weights.emplace_back(network.unit_parameters(unit)));
        optimizers.emplace_back(device, zero3_gpt::adamw_options{}, network.unit_parameters(unit),
                                decayed(network, unit));
    }
    pass batch{device, network, 4};
    float first_loss = 0.0F;
    float loss = 0.0F;
    std::vector<float> gradient;
    for (int step = 0; step < 50; ++step) {
        batch.begin(tokens, targets);
        for (int unit = 0; unit < network.units(); ++unit) batch.forward(unit, weights[static_cast<std::size_t>(unit)]);
        loss = batch.loss();
        if (step == 0) first_loss = loss;
        for (int unit = network.units() - 1; unit >= 0; --unit) {
            auto& unit_weights = weights[static_cast<std::size_t>(unit)];
            gradient.resize(unit_weights.size());
            batch.backward(unit, unit_weights, gradient);
            optimizers[static_cast<std::size_t>(unit)].update(unit_weights, gradient, 5e-3);
        }
    }
    CHECK(std::abs(first_loss - std::log(256.0F)) < 0.05F);  // the first guess is uniform
    CHECK(loss < 0.5F);
}

TEST_CASE("initial weights are GPT-2's", "[zero3_gpt][model]") {
    const model network{{.layers = 2, .heads = 2, .width = 64, .context = 16}};
    std::vector<float> weights(network.unit_parameters(1));
    network.initialise(1, 5, weights);

    const auto deviation = [&](std::size_t begin, std::size_t end) {
        double mean = 0.0;
        double square = 0.0;
        for (std::size_t i = begin; i < end; ++i) {
            mean += static_cast<double>(weights[i]);
            square += static_cast<double>(weights[i]) * static_cast<double>(weights[i]);
        }
        const auto count = static_cast<double>(end - begin);
        CHECK(std::abs(mean / count) < 1e-3);
        return std::sqrt(square / count);
    };
    constexpr std::size_t square = 64 * 64;
    CHECK(std::abs(deviation(0, 3 * square) / 0.02 - 1.0) < 0.03);
    CHECK(std::abs(deviation(3 * square, 4 * square) / 0.01 - 1.0) < 0.05);
    CHECK(std::abs(deviation(4 * square, 8 * square) / 0.02 - 1.0) < 0.03);
    CHECK(std::abs(deviation(8 * square, 12 * square) / 0.01 - 1.0) < 0.03);
    const auto all = [&](std::size_t begin, std::size_t count, float expected) {
        return std::all_of(weights.begin() + static_cast<std::ptrdiff_t>(begin),
                           weights.begin() + static_cast<std::ptrdiff_t>(begin + count),
                           [expected](float value) { return value == expected; });
    };
    const std::size_t norm1 = 12 * square + std::size_t{9 * 64};
    CHECK(all(12 * square, std::size_t{9 * 64}, 0.0F));
    CHECK(all(norm1, 64, 1.0F));
    CHECK(all(norm1 + 64, 64, 0.0F));
    CHECK(all(norm1 + 128, 64, 1.0F));
    CHECK(all(norm1 + 192, 64, 0.0F));

    std::vector<float> again(weights.size());
    network.initialise(1, 5, again);
    CHECK(again == weights);
    network.initialise(1, 6, again);
    CHECK(again != weights);
    network.initialise(2, 5, again);
    CHECK(again != weights);
}

TEST_CASE("tensors of a unit are where the structs say, those that decay before the others", "[zero3_gpt][model]") {
    const model network{{.layers = 1, .heads = 2, .width = 16, .context = 10}};
    std::vector<float> unit(network.unit_parameters(1));
    const auto block = cut_block(network.config(), unit.data());
    const float* const begins[] = {
        block.qkv_weight, block.attention_out_weight, block.mlp_in_weight, block.mlp_out_weight,
        block.qkv_bias,   block.attention_out_bias,   block.mlp_in_bias,   block.mlp_out_bias,
        block.norm1_gain, block.norm1_bias,           block.norm2_gain,    block.norm2_bias};
    const auto tensors = network.tensors(1);
    REQUIRE(tensors.size() == 12);
    for (std::size_t t = 0; t != 12; ++t) {
        CHECK(unit.data() + tensors[t].begin == begins[t]);
        CHECK(tensors[t].begin + tensors[t].size == (t == 11 ? unit.size() : tensors[t + 1].begin));
        CHECK(tensors[t].decayed == (t < 4 ? tensors[t].size : 0));
    }
}

TEST_CASE("units add up and decay covers matrices only", "[zero3_gpt][model]") {
    const model network{{.layers = 3, .heads = 2, .width = 16, .context = 10}};
    REQUIRE(network.units() == 5);
    CHECK(network.unit_parameters(0) == (256 + 10) * 16);
    CHECK(network.unit_parameters(2) == 12 * 256 + 13 * 16);
    CHECK(network.unit_parameters(4) == (256 + 2) * 16);
    CHECK(network.parameters() == 266 * 16 + 3 * (12 * 256 + 13 * 16) + 258 * 16);
    CHECK(decayed(network, 0) == 0);
    CHECK(decayed(network, 1) == 12 * 256);
    CHECK(decayed(network, 4) == 256 * 16);
}

TEST_CASE("the vectorised exponential keeps close to std::exp", "[zero3_gpt][model]") {
    for (float x = 0.0F; x <= 80.0F; x += 0.01F) {
        const double expected = std::exp(-static_cast<double>(x));
        REQUIRE(std::abs(static_cast<double>(zero3_gpt::falling_exp(-x)) - expected) < 3e-7 * expected);
        REQUIRE(zero3_gpt::falling_exp(-x) == zero3_gpt::falling_exp(x));
    }
    constexpr float infinity = std::numeric_limits<float>::infinity();
    for (const float x : {81.0F, 1e6F, 1e30F, infinity}) {
        CHECK(zero3_gpt::falling_exp(-x) == zero3_gpt::falling_exp(-80.0F));
    }
    CHECK(zero3_gpt::falling_exp(0.0F) == 1.0F);
    CHECK(std::isnan(zero3_gpt::falling_exp(std::numeric_limits<float>::quiet_NaN())));
    CHECK(std::isnan(zero3_gpt::falling_exp(-std::numeric_limits<float>::quiet_NaN())));
}

TEST_CASE("a wrong call says what was expected", "[zero3_gpt][model]") {
    CHECK(contains(thrown<std::logic_error>([] { model{{.layers = 0}}; }), "layers is 0, allowed are 1 to"));
    CHECK(contains(thrown<std::logic_error>([] { model{{.heads = -1}}; }), "heads is -1"));
    CHECK(contains(thrown<std::logic_error>([] { model{{.width = 20000}}; }), "width is 20000"));
    CHECK(contains(thrown<std::logic_error>([] { model{{.context = 0}}; }), "context is 0"));
    CHECK(
        contains(thrown<std::logic_error>([] { model{{.heads = 3, .width = 64}}; }), "multiples of heads, which is 3"));

    experiment trial{tiny};
    CHECK(contains(thrown<std::logic_error>([&] { pass{device, trial.network, 0}; }), "largest_batch is 0"));
    CHECK(contains(thrown<std::logic_error>([&] { trial.network.initialise(1, 0, trial.weights[0]); }), "unit 1 has"));
    CHECK(contains(thrown<std::logic_error>([&] { (void)trial.network.unit_parameters(4); }),
                   "unit is 4, allowed are 0 to 3"));

    pass batch{device, trial.network, 2};
    CHECK(contains(thrown<std::logic_error>([&] { batch.forward(0, trial.weights[0]); }), "expected begin"));
    trial.tokens.pop_back();
    CHECK(contains(thrown<std::logic_error>([&] { batch.begin(trial.tokens, trial.targets); }),
                   "9 tokens and 10 targets"));
    trial.targets.pop_back();
    CHECK_THROWS_AS(batch.begin(trial.tokens, trial.targets), std::invalid_argument);
    const experiment larger{tiny, 3};
    CHECK_THROWS_AS(batch.begin(larger.tokens, larger.targets), std::invalid_argument);

    const experiment valid{tiny};
    batch.begin(valid.tokens, valid.targets);
    CHECK_THROWS_AS(batch.loss(), std::logic_error);
    CHECK(contains(thrown<std::logic_error>([&] { batch.forward(1, trial.weights[1]); }),
                   "expected forward of unit 0, given"));
    CHECK(contains(thrown<std::logic_error>([&] { batch.forward(0, trial.weights[1]); }),
                   "unit 0 has 2088 parameters, given 872"));
    for (int unit = 0; unit < 4; ++unit) batch.forward(unit, experiment::of(trial.weights, unit));
    CHECK_NOTHROW(batch.loss());
    CHECK(contains(thrown<std::logic_error>([&] { batch.backward(2, trial.weights[2], trial.gradients[2]); }),
                   "expected backward of unit 3"));
    CHECK(contains(thrown<std::logic_error>([&] { batch.backward(3, trial.weights[3], trial.gradients[2]); }),
                   "gradient elements"));
}
