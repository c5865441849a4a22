#pragma once
/// \file
/// Codes to bits and back.

#include <zeropp/core/math.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace zeropp::detail {

static_assert(std::endian::native == std::endian::little,
              "messages are little-endian and so is every machine this runs on");

/// Writes the `Bits` low bits of n codes densely, first code lowest: ceil(n * Bits / 8) bytes, unused bits zero.
template <int Bits>
void pack(const std::uint32_t* codes, std::size_t n, std::byte* out) {
    if constexpr (Bits == 8 || Bits == 16 || Bits == 32) {
        constexpr std::size_t bytes = Bits / 8;
        for (std::size_t i = 0; i != n; ++i) {
            if constexpr (Bits == 8) {
                out[i] = static_cast<std::byte>(codes[i]);
            } else {
                std::memcpy(out + i * bytes, &codes[i], bytes);
            }
        }
    } else if constexpr (Bits == 4) {
        for (std::size_t i = 0; i != n / 2; ++i) out[i] = static_cast<std::byte>(codes[2 * i] | codes[2 * i + 1] << 4);
        if (n % 2 != 0) out[n / 2] = static_cast<std::byte>(codes[n - 1]);
    } else {
        static_assert(Bits < 8);
        // Eight codes fill exactly Bits bytes.
        for (; n != 0;) {
            const std::size_t some = n < 8 ? n : 8;
            std::uint64_t word = 0;
            for (std::size_t i = 0; i != some; ++i) word |= static_cast<std::uint64_t>(codes[i]) << (i * Bits);
            const std::size_t bytes = ceil_div(some * Bits, 8);
            for (std::size_t i = 0; i != bytes; ++i) out[i] = static_cast<std::byte>(word >> (8 * i));
            codes += some;
            out += bytes;
            n -= some;
        }
    }
}

/// Reads n codes back.
template <int Bits>
void unpack(const std::byte* in, std::size_t n, std::uint32_t* codes) {
    if constexpr (Bits == 8 || Bits == 16 || Bits == 32) {
        constexpr std::size_t bytes = Bits / 8;
        for (std::size_t i = 0; i != n; ++i) {
            if constexpr (Bits == 8) {
                codes[i] = static_cast<std::uint32_t>(in[i]);
            } else {
                codes[i] = 0;
                std::memcpy(&codes[i], in + i * bytes, bytes);
            }
        }
    } else if constexpr (Bits == 4) {
        for (std::size_t i = 0; i != n / 2; ++i) {
            codes[2 * i] = static_cast<std::uint32_t>(in[i]) & 15u;
            codes[2 * i + 1] = static_cast<std::uint32_t>(in[i]) >> 4;
        }
        if (n % 2 != 0) codes[n - 1] = static_cast<std::uint32_t>(in[n / 2]) & 15u;
    } else {
        constexpr std::uint32_t mask = (1u << Bits) - 1u;
        for (; n != 0;) {
            const std::size_t some = n < 8 ? n : 8;
            const std::size_t bytes = ceil_div(some * Bits, 8);
            std::uint64_t word = 0;
            for (std::size_t i = 0; i != bytes; ++i) word |= static_cast<std::uint64_t>(in[i]) << (8 * i);
            for (std::size_t i = 0; i != some; ++i) codes[i] = static_cast<std::uint32_t>(word >> (i * Bits)) & mask;
            codes += some;
            in += bytes;
            n -= some;
        }
    }
}

}  // namespace zeropp::detail
