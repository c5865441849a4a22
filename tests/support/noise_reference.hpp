#pragma once
/// \file
/// The noise of stochastic rounding, by its documentation.

#include <cstdint>

namespace zeropp_test {

/// Noise of element `index` of a tensor, or of a sum at that index: 16 bits of philox4x32-10, in steps of 2^-15 about
/// zero. The key is the seed. The counter is (index / 8, with the highest bit set for a sum; step).
inline float noise_of_element(std::uint64_t seed, std::uint64_t step, std::uint64_t index, bool sum) {
    const std::uint64_t granule = index / 8 | (sum ? std::uint64_t{1} << 63 : 0);
    constexpr std::uint64_t low = 0xffffffffu;
    std::uint64_t c[4] = {granule & low, granule >> 32, step & low, step >> 32};
    std::uint64_t key[2] = {seed & low, seed >> 32};
    for (int round = 0; round != 10; ++round) {
        const std::uint64_t first = 0xd2511f53u * c[0];
        const std::uint64_t second = 0xcd9e8d57u * c[2];
        c[0] = (second >> 32) ^ c[1] ^ key[0];
        c[1] = second & low;
        c[2] = (first >> 32) ^ c[3] ^ key[1];
        c[3] = first & low;
        key[0] = (key[0] + 0x9e3779b9u) & low;
        key[1] = (key[1] + 0xbb67ae85u) & low;
    }
    const std::uint64_t bits = c[index % 8 / 2] >> (index % 2 * 16) & 0xffffu;
    // The lowest bit is unused: there are 32768 values, the first at -1/2 + 2^-16.
    return static_cast<float>(static_cast<double>(bits / 2) / 32768.0 - 0.5 + 0x1p-16);
}

}  // namespace zeropp_test
