#pragma once
/// \file
/// Packs codes into dense bits, and unpacks them.

#include <zeropp/codec/host/target.hpp>
#include <zeropp/core/math.hpp>
#include <zeropp/layout/ternary.hpp>
#include <zeropp/quantizer/quantizer.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace zeropp::detail {

ZEROPP_DETAIL_INLINE_BEGIN

static_assert(std::endian::native == std::endian::little,
              "messages are little-endian and so is every machine this runs on");

/// Unsigned integer that holds one unpacked code of `Bits` bits.
template <int Bits>
using code_word =
    std::conditional_t<Bits <= 8, std::uint8_t, std::conditional_t<Bits <= 16, std::uint16_t, std::uint32_t>>;

/// In each field of `Width` bits, moves the `Used` low bits of the upper half down, next to the lower half's `Used` low
/// bits. Clears all other bits.
template <int Width, int Used>
constexpr std::uint64_t join(std::uint64_t word) {
    constexpr std::uint64_t lower =
        ~std::uint64_t{0} / ((std::uint64_t{1} << (Width - 1) << 1) - 1) * ((std::uint64_t{1} << Used) - 1);
    return (word & lower) | (word & lower << Width / 2) >> (Width / 2 - Used);
}
/// Inverse of `join`: in each field of `Width` bits, moves the second `Used` bits up, to the start of the upper half.
template <int Width, int Used>
constexpr std::uint64_t part(std::uint64_t word) {
    constexpr std::uint64_t lower =
        ~std::uint64_t{0} / ((std::uint64_t{1} << (Width - 1) << 1) - 1) * ((std::uint64_t{1} << Used) - 1);
    return (word & lower) | (word & lower << Used) << (Width / 2 - Used);
}

/// Packs eight codes of fewer than 8 bits, one in each byte of `word`, into the low 8 * `Bits` bits.
template <int Bits>
constexpr std::uint64_t squeeze(std::uint64_t word) {
    return join<64, 4 * Bits>(join<32, 2 * Bits>(join<16, Bits>(word)));
}
/// Unpacks the eight codes in the low 8 * `Bits` bits of `word`, one into each byte.
template <int Bits>
constexpr std::uint64_t spread(std::uint64_t word) {
    return part<16, Bits>(part<32, 2 * Bits>(part<64, 4 * Bits>(word)));
}

/// Calls move(i, some, bytes) for each eight of n codes of `Bits` bits: for `some` codes, from code i on, in `bytes`
/// bytes. Both are 8 while 8 bytes of room are left. Each such word overwrites the unused end of the word before.
template <int Bits, class Move>
void for_each_word(std::size_t n, const Move& move) {
    constexpr std::size_t room = ceil_div(64, Bits);
    std::size_t i = 0;
    for (; i + room <= n; i += 8) move(i, 8, 8);
    for (; i < n; i += 8) {
        const std::size_t some = std::min<std::size_t>(n - i, 8);
        move(i, some, ceil_div(some * Bits, 8));
    }
}

/// Packs n codes below 2^Bits into ceil(n * Bits / 8) bytes, the first in the lowest bits. Unused bits become zero.
template <int Bits>
void pack(const code_word<Bits>* codes, std::size_t n, std::byte* out) {
    if constexpr (Bits == 8 || Bits == 16 || Bits == 32) {
        if (n != 0) std::memcpy(out, codes, n * sizeof(*codes));
    } else if constexpr (Bits == 4) {
        // GCC would unroll a short loop before it looks for vectors, and leave it scalar.
        ZEROPP_DETAIL_UNROLL(1)
        for (std::size_t i = 0; i != n / 2; ++i) {
            std::uint16_t two;
            std::memcpy(&two, codes + 2 * i, 2);
            out[i] = static_cast<std::byte>(two | two >> 4);
        }
        if (n % 2 != 0) out[n / 2] = static_cast<std::byte>(codes[n - 1]);
    } else {
        for_each_word<Bits>(n, [=](std::size_t i, std::size_t some, std::size_t bytes) {
            std::uint64_t word = 0;
            std::memcpy(&word, codes + i, some);
            word = squeeze<Bits>(word);
            std::memcpy(out + i / 8 * Bits, &word, bytes);
        });
    }
}

/// Unpacks n codes from ceil(n * Bits / 8) bytes, the first in the lowest bits.
template <int Bits>
void unpack(const std::byte* in, std::size_t n, code_word<Bits>* codes) {
    if constexpr (Bits == 8 || Bits == 16 || Bits == 32) {
        if (n != 0) std::memcpy(codes, in, n * sizeof(*codes));
    } else if constexpr (Bits == 4) {
        ZEROPP_DETAIL_UNROLL(1)
        for (std::size_t i = 0; i != n / 2; ++i) {
            const auto byte = static_cast<unsigned>(in[i]);
            const auto two = static_cast<std::uint16_t>((byte | byte << 4) & 0x0f0fu);
            std::memcpy(codes + 2 * i, &two, 2);
        }
        if (n % 2 != 0) codes[n - 1] = static_cast<std::uint8_t>(in[n / 2]) & 15u;
    } else {
        for_each_word<Bits>(n, [=](std::size_t i, std::size_t some, std::size_t bytes) {
            std::uint64_t word = 0;
            std::memcpy(&word, in + i / 8 * Bits, bytes);
            word = spread<Bits>(word);
            std::memcpy(codes + i, &word, some);
        });
    }
}

/// Table of 256 words: ternary_words[b] has the five ternary codes of byte b, one in each byte, the first in the
/// lowest.
inline constexpr auto ternary_words = [] {
    std::array<std::uint64_t, 256> words{};
    for (std::uint32_t byte = 0; byte != 256; ++byte) {
        const std::uint64_t codes = ternary_codes(byte);
        for (std::size_t i = 0; i != codes_in_byte; ++i) words[byte] |= (codes >> 2 * i & 3u) << 8 * i;
    }
    return words;
}();

/// Packs n ternary codes, five to a byte, into ceil(n / 5) bytes. Requires codes below 3.
inline void pack_ternary(const std::uint8_t* codes, std::size_t n, std::byte* out) {
    // Bits 32 to 39 of the product are the sum of the five codes times powers of 3. Sums are at most 242, so no byte
    // carries.
    constexpr std::uint64_t powers = 0x01'03'09'1b'51;
    std::size_t i = 0;
    const auto pack_byte = [&](std::size_t some) {
        std::uint64_t word = 0;
        std::memcpy(&word, codes + i, some);
        *out++ = static_cast<std::byte>(word * powers >> 32);
    };
    for (; i + sizeof powers <= n; i += codes_in_byte) pack_byte(sizeof powers);
    for (; i < n; i += codes_in_byte) pack_byte(std::min(codes_in_byte, n - i));
}

/// Unpacks n ternary codes, five from a byte, from ceil(n / 5) bytes.
inline void unpack_ternary(const std::byte* in, std::size_t n, std::uint8_t* codes) {
    std::size_t i = 0;
    const auto unpack_byte = [&](std::size_t some) {
        std::memcpy(codes + i, &ternary_words[static_cast<std::size_t>(*in++)], some);
    };
    // Writes whole words while 8 bytes of room are left. Each word overwrites the unused end of the word before.
    for (; i + sizeof(std::uint64_t) <= n; i += codes_in_byte) unpack_byte(sizeof(std::uint64_t));
    for (; i < n; i += codes_in_byte) unpack_byte(std::min(codes_in_byte, n - i));
}

/// Packs n codes of Q. If Q is ternary, requires the first code's index in its block to be a multiple of 128.
template <quantizer Q>
void pack_codes(const code_word<Q::code_bits>* codes, std::size_t n, std::byte* out) {
    if constexpr (ternary_quantizer<Q>) {
        constexpr std::size_t group = ternary_group<Q>;
        for (std::size_t i = 0; i < n; i += group) {
            pack_ternary(codes + i, std::min(group, n - i), out + ternary_bytes(i, group));
        }
    } else {
        pack<Q::code_bits>(codes, n, out);
    }
}

/// Unpacks n codes of Q. If Q is ternary, requires the first code's index in its block to be a multiple of 128.
template <quantizer Q>
void unpack_codes(const std::byte* in, std::size_t n, code_word<Q::code_bits>* codes) {
    if constexpr (ternary_quantizer<Q>) {
        constexpr std::size_t group = ternary_group<Q>;
        for (std::size_t i = 0; i < n; i += group) {
            unpack_ternary(in + ternary_bytes(i, group), std::min(group, n - i), codes + i);
        }
    } else {
        unpack<Q::code_bits>(in, n, codes);
    }
}

ZEROPP_DETAIL_INLINE_END

}  // namespace zeropp::detail
