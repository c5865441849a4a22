#pragma once
/// \file
/// Options of training with local steps.

#include <zeropp/core/error.hpp>
#include <zeropp/core/math.hpp>
#include <zeropp/core/text.hpp>
#include <zeropp/layout/chunking.hpp>
#include <zeropp/topology/topology.hpp>

#include <cstdint>
#include <string>

namespace zeropp {

/// Options of training with local steps; equal on all ranks. Default learning rate and momentum are DiLoCo's (arXiv
/// 2311.08105).
struct outer_options {
    /// Number of inner steps between two exchanges of a tensor (H), at least 1.
    int every = 30;
    /// Number of fragments, at least 1: parts of the model that exchange in turn. Each fragment has an outer_optimizer.
    int fragments = 1;
    /// Number of inner steps from the begin of an exchange to the use of its result, below `every`.
    int delay = 0;
    /// Outer learning rate, above 0.
    float learning_rate = 0.7f;
    /// Outer Nesterov momentum, from 0 to less than 1.
    float momentum = 0.9f;
    /// Factor of an island's own weights in its weights after an exchange, from 0 to 1: alpha of Streaming DiLoCo.
    float alpha = 0.0f;
    /// Number of chunks of each shard in the exchange's all-reduce, above 0, or `auto_chunks` to choose it by message
    /// size.
    int chunks = auto_chunks;

    /// True if fragment `fragment`, counted from 0, begins an exchange after inner step `step`, counted from 1. Each
    /// fragment begins an exchange every `every` steps; the begins of all fragments are spread evenly over these steps.
    /// Throws precondition_error if `every` or `fragments` is below 1, or if there is no such fragment.
    constexpr bool begins(int fragment, std::int64_t step) const {
        if (every < 1 || fragments < 1) throw precondition_error("outer_options: " + problem());
        detail::existing("outer_options", "a fragment", fragments, fragment);
        const std::int64_t turn = std::int64_t{fragment + 1} * every / fragments;
        return step > 0 && step % every == turn % every;
    }
    /// True if `fragment` applies an exchange after inner step `step`: the exchange that began `delay` steps before.
    /// Throws precondition_error as `begins` does.
    constexpr bool applies(int fragment, std::int64_t step) const { return begins(fragment, step - delay); }

    /// Text of the options without `chunks`, which ranks compare. Fractions are written as the bits of floats.
    constexpr agreed_text text() const {
        agreed_text t("every ");
        t.append(every).append(" steps in ").append(fragments).append(" fragments, applied after ").append(delay);
        t.append(", rate ").append(float_bits(learning_rate)).append(", momentum ").append(float_bits(momentum));
        return t.append(", alpha ").append(float_bits(alpha));
    }

    /// Why these options cannot be used, as "expected ..., given ..."; empty if they can.
    std::string problem() const {
        const auto given = [](const char* expected, auto value) {
            return std::string("expected ") + expected + ", given " + std::to_string(value);
        };
        if (every < 1) return given("an exchange every 1 step or more", every);
        if (fragments < 1) return given("at least 1 fragment", fragments);
        if (delay < 0 || delay >= every) return given("a delay from 0 to less than `every`", delay);
        if (!(learning_rate > 0.0f) || !is_finite(learning_rate)) {
            return given("a learning rate above 0", learning_rate);
        }
        if (!(momentum >= 0.0f && momentum < 1.0f)) return given("a momentum from 0 to less than 1", momentum);
        if (!(alpha >= 0.0f && alpha <= 1.0f)) return given("an alpha from 0 to 1", alpha);
        return {};
    }
};

}  // namespace zeropp
