#pragma once

#include <cstdint>

namespace zero3_gpt {

/// The finaliser of SplitMix64: a bijection in which every input bit reaches every output bit.
[[nodiscard]] constexpr std::uint64_t mix(std::uint64_t x) noexcept {
    x += 0x9e3779b97f4a7c15U;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
    return x ^ (x >> 31);
}

/// 64 random bits for draw `counter` of `stream`. Counter-based: there is no state to keep equal on all ranks,
/// and integers only: the bits are the same on every machine and with every standard library.
[[nodiscard]] constexpr std::uint64_t random_bits(std::uint64_t seed, std::uint64_t stream,
                                                  std::uint64_t counter) noexcept {
    return mix(mix(mix(seed) ^ stream) ^ counter);
}

/// A standard normal deviate for draw `counter`: the sum of twelve uniforms, which has mean 0 and variance 1.
/// Box-Muller would have better tails, but its log and cos may differ by an ulp between two CPUs, and every rank
/// has to start from the same bits.
[[nodiscard]] constexpr float random_normal(std::uint64_t seed, std::uint64_t stream, std::uint64_t counter) noexcept {
    constexpr std::uint64_t draws = 12;
    std::uint64_t sum = 0;
    for (std::uint64_t word = 0; word < draws / 4; ++word) {
        const std::uint64_t bits = random_bits(seed, stream, counter * (draws / 4) + word);
        for (int shift = 0; shift < 64; shift += 16) sum += (bits >> shift) & 0xffffU;
    }
    // Each 16-bit draw stands for the middle of its interval, hence the half for every draw.
    return (static_cast<float>(sum) + 0.5F * draws) / 65536.0F - 0.5F * draws;
}

}  // namespace zero3_gpt
