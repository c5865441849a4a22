#include "model.hpp"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <string_view>

#include "random.hpp"

namespace zero3_gpt {
namespace {

void check_size(std::string_view name, int value, int largest) {
    if (value >= 1 && value <= largest) return;
    throw std::invalid_argument("model: " + std::string{name} + " is " + std::to_string(value) + ", allowed are 1 to " +
                                std::to_string(largest));
}

}  // namespace

model::model(model_config config, const std::string& weights) : config_{config} {
    // These bounds keep every matrix dimension within CBLAS's int.
    check_size("layers", config.layers, 1024);
    check_size("heads", config.heads, 1024);
    check_size("width", config.width, 16384);
    check_size("context", config.context, 16384);
    if (config.width % config.heads != 0) {
        throw std::invalid_argument("model: width is " + std::to_string(config.width) +
                                    ", allowed are multiples of heads, which is " + std::to_string(config.heads));
    }
    for (int unit = 0; !weights.empty() && unit < units(); ++unit) {
        const std::string file = weights + "." + std::to_string(unit) + ".weights.fp32";
        std::vector<float>& own = given_.emplace_back(unit_parameters(unit));
        std::ifstream in(file, std::ios::binary);
        in.read(reinterpret_cast<char*>(own.data()), static_cast<std::streamsize>(own.size() * sizeof(float)));
        if (!in || in.peek() != std::ifstream::traits_type::eof()) {
            throw std::invalid_argument("model: expected a file of " + std::to_string(own.size()) +
                                        " weights in fp32, given " + file);
        }
    }
}

void model::check_unit(int unit) const {
    if (unit >= 0 && unit < units()) return;
    throw std::out_of_range("model: unit is " + std::to_string(unit) + ", allowed are 0 to " +
                            std::to_string(units() - 1));
}

std::size_t model::unit_parameters(int unit) const {
    check_unit(unit);
    const auto width = static_cast<std::size_t>(config_.width);
    const auto context = static_cast<std::size_t>(config_.context);
    if (unit == 0) return (vocabulary + context) * width;
    if (unit == head_unit()) return (vocabulary + 2) * width;
    return 12 * width * width + 13 * width;
}

std::size_t model::parameters() const {
    std::size_t sum = 0;
    for (int unit = 0; unit < units(); ++unit) sum += unit_parameters(unit);
    return sum;
}

std::vector<unit_tensor> model::tensors(int unit) const {
    check_unit(unit);
    const auto width = static_cast<std::size_t>(config_.width);
    const auto context = static_cast<std::size_t>(config_.context);
    std::vector<unit_tensor> all;
    const auto add = [&](std::initializer_list<std::size_t> sizes, bool decayed) {
        for (const std::size_t size : sizes) {
            const std::size_t begin = all.empty() ? 0 : all.back().begin + all.back().size;
            all.push_back({begin, size, decayed ? size : 0});
        }
    };
    if (unit == 0) {
        add({vocabulary * width, context * width}, false);
    } else if (unit == head_unit()) {
        add({width * vocabulary}, true);
        add({width, width}, false);
    } else {
        add({3 * width * width, width * width, 4 * width * width, 4 * width * width}, true);
        add({3 * width, width, 4 * width, width, width, width, width, width}, false);
    }
    return all;
}

void model::initialise(int unit, std::uint64_t seed, std::span<float> weights) const {
    if (weights.size() != unit_parameters(unit)) {
        throw std::invalid_argument("model: unit " + std::to_string(unit) + " has " +
                                    std::to_string(unit_parameters(unit)) + " parameters, given room for " +
                                    std::to_string(weights.size()));
    }
    if (!given_.empty()) {
        std::ranges::copy(given_[static_cast<std::size_t>(unit)], weights.begin());
        return;
    }
    const auto fill_normal = [&](float* part, std::size_t count, float deviation) {
        const auto first = static_cast<std::size_t>(part - weights.data());
        for (std::size_t i = 0; i < count; ++i) {
            part[i] = deviation * random_normal(seed, static_cast<std::uint64_t>(unit), first + i);
        }
    };
    constexpr float deviation = 0.02F;
    const auto width = static_cast<std::size_t>(config_.width);

    std::ranges::fill(weights, 0.0F);
    if (unit == 0) {
        fill_normal(weights.data(), weights.size(), deviation);
    } else if (unit == head_unit()) {
        const auto part = cut_head(config_, weights.data());
        fill_normal(part.weight, width * vocabulary, deviation);
        std::fill_n(part.norm_gain, width, 1.0F);
    } else {
        const auto part = cut_block(config_, weights.data());
        const float residual_deviation = deviation / std::sqrt(2.0F * static_cast<float>(config_.layers));
        fill_normal(part.qkv_weight, 3 * width * width, deviation);
        fill_normal(part.attention_out_weight, width * width, residual_deviation);
        fill_normal(part.mlp_in_weight, 4 * width * width, deviation);
        fill_normal(part.mlp_out_weight, 4 * width * width, residual_deviation);
        std::fill_n(part.norm1_gain, width, 1.0F);
        std::fill_n(part.norm2_gain, width, 1.0F);
    }
}

}  // namespace zero3_gpt
