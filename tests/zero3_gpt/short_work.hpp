#pragma once
/// \file
/// A small model and a short text, on which tests train for a few steps.

#include "trainer.hpp"

#include <cstddef>
#include <string>

namespace zero3_gpt {

inline constexpr model_config small{.layers = 2, .heads = 2, .width = 16, .context = 8};

inline workload short_work(const model_config& config = small, std::size_t bytes = 300) {
    std::string words;
    for (int i = 0; words.size() < bytes; ++i) words += "line " + std::to_string(i * i) + " of a short text; ";
    return {model(config), text(words, config.context)};
}

}  // namespace zero3_gpt
