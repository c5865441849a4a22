#include <zeropp/core/math.hpp>

#include "support/catch.hpp"

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace {

std::vector<std::uint32_t> words(zeropp::random_words counter, std::uint64_t key) {
    const zeropp::random_words r = zeropp::philox(counter, key);
    return {r.word, r.word + 4};
}

static_assert(zeropp::philox({{0, 0, 0, 0}}, 0).word[0] == 0x6627e8d5u, "constant expressions may ask");

}  // namespace

TEST_CASE("philox gives the published numbers", "[core][philox]") {
    // The known answers of Random123 for philox4x32 with 10 rounds, and a counter whose words all differ.
    using answer = std::vector<std::uint32_t>;
    CHECK(words({{0, 0, 0, 0}}, 0) == answer{0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u});
    CHECK(words({{~0u, ~0u, ~0u, ~0u}}, ~std::uint64_t{0}) ==
          answer{0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu});
    CHECK(words({{0x243f6a88u, 0x85a308d3u, 0x13198a2eu, 0x03707344u}}, 0x299f31d0a4093822u) ==
          answer{0xd16cfe09u, 0x94fdccebu, 0x5001e420u, 0x24126ea1u});
}

TEST_CASE("every bit of counter and key changes about half of the words' bits", "[core][philox]") {
    const zeropp::random_words counter{{7, 0, 3, 0}};
    const std::uint64_t key = 0x123456789abcdefu;
    const auto from = words(counter, key);
    const auto changed = [&](const std::vector<std::uint32_t>& to) {
        int bits = 0;
        for (std::size_t i = 0; i != 4; ++i) bits += std::popcount(from[i] ^ to[i]);
        return bits;
    };
    for (int bit = 0; bit != 192; ++bit) {
        zeropp::random_words other = counter;
        if (bit < 128) other.word[bit / 32] ^= 1u << bit % 32;
        const std::uint64_t other_key = bit < 128 ? key : key ^ std::uint64_t{1} << (bit - 128);
        const int bits = changed(words(other, other_key));
        CAPTURE(bit);
        // 64 on average, with a standard deviation of 5.7: five of them.
        CHECK(bits > 35);
        CHECK(bits < 93);
    }
}
