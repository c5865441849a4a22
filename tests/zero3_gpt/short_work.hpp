#pragma once
/// \file
/// A small model, a short text and few formats, with which tests train for a few steps.

#include "formats.hpp"
#include "trainer.hpp"

#include <cstddef>
#include <string>

namespace zero3_gpt {

/// Equal in all tests, so that one engine is compiled for them.
struct few_formats : wire_formats {
    using weights = zeropp::named_quantizers<bf16, fp32>;
    using gradients = zeropp::named_hops<hops<bf16, bf16>, hops<fp32, fp32>, hops<fp32, bf16>, hops<fp32, fp32, bf16>>;
    using exchanges = zeropp::named_quantizers<bf16, int4_rotated>;
};

inline constexpr model_config small{.layers = 2, .heads = 2, .width = 16, .context = 8};

inline workload short_work(const model_config& config = small, std::size_t bytes = 300) {
    std::string words;
    for (int i = 0; words.size() < bytes; ++i) words += "line " + std::to_string(i * i) + " of a short text; ";
    return {model(config), text(words, config.context)};
}

}  // namespace zero3_gpt
