#pragma once

#include <cstdint>

namespace zero3_gpt {

/// The finaliser of SplitMix64: a bijection in which every input bit affects every output bit.
[[nodiscard]] constexpr std::uint64_t mix(std::uint64_t x) noexcept {
    x += 0x9e3779b97f4a7c15U;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
    return x ^ (x >> 31);
}

/// 64 random bits for draw `counter` of `stream`. Without state, ranks need not keep any equal. With integers only, the
/// bits are equal on all machines and standard libraries.
[[nodiscard]] constexpr std::uint64_t random_bits(std::uint64_t seed, std::uint64_t stream,
                                                  std::uint64_t counter) noexcept {
    return mix(mix(mix(seed) ^ stream) ^ counter);
}

/// Standard normal deviate for draw `counter`: the sum of twelve uniforms, with mean 0 and variance 1. Box-Muller has
/// better tails, but its log and cos may differ by an ulp between CPUs, and ranks need equal bits.
[[nodiscard]] constexpr float random_normal(std::uint64_t seed, std::uint64_t stream, std::uint64_t counter) noexcept {
    constexpr std::uint64_t draws = 12;
    std::uint64_t sum = 0;
    for (std::uint64_t word = 0; word < draws / 4; ++word) {
        const std::uint64_t bits = random_bits(seed, stream, counter * (draws / 4) + word);
        for (int shift = 0; shift < 64; shift += 16) sum += (bits >> shift) & 0xffffU;
    }
    // Each 16-bit draw stands for the middle of its interval, hence the 0.5 for every draw.
    return (static_cast<float>(sum) + 0.5F * draws) / 65536.0F - 0.5F * draws;
}

}  // namespace zero3_gpt
