#pragma once
/// \file
/// Random bits as a function of a counter.

#include <zeropp/core/config.hpp>

#include <cstdint>

namespace zeropp {

/// Four random 32-bit words.
struct random_words {
    std::uint32_t word[4];
};

/// Philox 4x32 with 10 rounds: 128 random bits of a 128-bit counter under a 64-bit key.
/// Source     Salmon et al., Parallel random numbers: as easy as 1, 2, 3 (SC 2011); cuRAND and PyTorch use it too
constexpr ZEROPP_HOST_DEVICE inline random_words philox(random_words counter, std::uint64_t key) noexcept {
    auto key_low = static_cast<std::uint32_t>(key);
    auto key_high = static_cast<std::uint32_t>(key >> 32);
    for (int round = 0; round != 10; ++round) {
        const std::uint64_t a = std::uint64_t{0xd2511f53u} * counter.word[0];
        const std::uint64_t b = std::uint64_t{0xcd9e8d57u} * counter.word[2];
        counter = {{static_cast<std::uint32_t>(b >> 32) ^ counter.word[1] ^ key_low, static_cast<std::uint32_t>(b),
                    static_cast<std::uint32_t>(a >> 32) ^ counter.word[3] ^ key_high, static_cast<std::uint32_t>(a)}};
        key_low += 0x9e3779b9u;
        key_high += 0xbb67ae85u;
    }
    return counter;
}

}  // namespace zeropp
