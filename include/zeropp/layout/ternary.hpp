#pragma once
/// \file
/// Packing of ternary codes, from 0 to 2: five share a byte, because 3^5 = 243 is below 256. 128 codes take 26 bytes.

#include <zeropp/core/math.hpp>
#include <zeropp/quantizer/quantizer.hpp>

#include <cstddef>
#include <cstdint>

namespace zeropp::detail {

/// Number of ternary codes in a byte. The first code is the lowest digit of the byte to base 3.
inline constexpr std::size_t codes_in_byte = 5;

/// Number of codes that are packed together, from a new byte on: the codes of a block, at most 128.
template <ternary_quantizer Q>
inline constexpr auto ternary_group = static_cast<std::size_t>(Q::block_size < 128 ? Q::block_size : 128);

/// Number of bytes of `n` ternary codes. Each `group` codes begin with a new byte.
constexpr ZEROPP_HOST_DEVICE std::size_t ternary_bytes(std::size_t n, std::size_t group) {
    return n / group * ceil_div(group, codes_in_byte) + ceil_div(n % group, codes_in_byte);
}

/// The byte of five ternary codes of two bits each, the first lowest. Requires codes below 3. Ignores higher bits.
constexpr ZEROPP_HOST_DEVICE std::uint32_t ternary_byte(std::uint32_t codes) {
    return (codes & 3u) + 3 * (codes >> 2 & 3u) + 9 * (codes >> 4 & 3u) + 27 * (codes >> 6 & 3u) +
           81 * (codes >> 8 & 3u);
}

/// The five ternary codes of a byte, two bits each, the first lowest. Bytes from 243 on, which `ternary_byte` does not
/// return, are read as `byte` - 243: every code is below 3.
constexpr ZEROPP_HOST_DEVICE std::uint32_t ternary_codes(std::uint32_t byte) {
    // byte times 1/243, modulo 1, in units of 2^-16. 1/243 is rounded up to 270 units. The whole part of each product
    // with 3 is a code, the last first.
    std::uint32_t fraction = byte * 270u & 0xffffu;
    std::uint32_t codes = 0;
    for (std::size_t i = 0; i != codes_in_byte; ++i) {
        fraction *= 3;
        codes = codes << 2 | fraction >> 16;
        fraction &= 0xffffu;
    }
    return codes;
}

}  // namespace zeropp::detail
