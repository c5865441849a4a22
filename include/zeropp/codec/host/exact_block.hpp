#pragma once
/// \file
/// Encodes and decodes one block of exact differences on the host.

#include <zeropp/codec/exact.hpp>
#include <zeropp/codec/host/share.hpp>
#include <zeropp/codec/host/target.hpp>
#include <zeropp/core/element.hpp>
#include <zeropp/core/math.hpp>
#include <zeropp/layout/exact_differences.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace zeropp::detail {

ZEROPP_DETAIL_INLINE_BEGIN

/// A value of type T that begins at `from`, which need not be aligned.
template <class T>
T loaded_as(const void* from) {
    T value;
    std::memcpy(&value, from, sizeof value);
    return value;
}

/// Numbers of i < n, at most 256, for which each of `is` is true.
template <class Size, class... Is>
std::array<int, sizeof...(Is)> count_if(Size n, const Is&... is) {
    constexpr std::size_t lanes = 32;
    std::uint8_t counts[sizeof...(Is)][lanes] = {};
    for_each_piece<lanes>(n, [&](std::size_t begin, auto some) {
        std::size_t j = 0;
        const auto add = [&](const auto& holds) {
            std::uint8_t* const of = counts[j++];
            const std::size_t size = some;
            // Clang would unroll the loop completely, and then not vectorise it.
            ZEROPP_DETAIL_UNROLL(1)
            for (std::size_t k = 0; k < size; ++k) of[k] = static_cast<std::uint8_t>(of[k] + holds(begin + k));
        };
        (add(is), ...);
    });
    std::array<int, sizeof...(Is)> sums;
    for (std::size_t j = 0; j != sums.size(); ++j) {
        // A byte holds the sum of four lanes, and 16 bits hold the sum of all.
        std::uint64_t sum = 0;
        for (std::size_t k = 0; k != lanes; k += 8) sum += loaded_as<std::uint64_t>(counts[j] + k);
        constexpr std::uint64_t even_bytes = 0x00ff00ff00ff00ff;
        sum = (sum & even_bytes) + (sum >> 8 & even_bytes);
        sums[j] = static_cast<int>(sum * 0x0001000100010001 >> 48);
    }
    return sums;
}

/// A block in pieces: 16-bit codes with their numbers of bits; pairs of codes in 32 bits; groups of four codes in 64
/// bits. In a pair and a group, the first code is in the lowest bits. Behind the block's elements, up to two whole
/// groups, codes have no bits.
struct exact_block {
    static constexpr std::size_t most = exact_differences::block_size;
    /// Exponent fields of the old elements.
    alignas(64) std::uint8_t exponents[most];
    /// The smallest reach in which an element is no exception.
    alignas(64) std::uint8_t needs[most];
    alignas(64) std::uint8_t is_exception[most];
    alignas(64) std::uint16_t codes[most];
    alignas(64) std::uint16_t bits[most];
    alignas(64) std::uint32_t pairs[most / 2];
    alignas(64) std::uint32_t pair_bits[most / 2];
    alignas(64) std::uint64_t groups[most / 4];
    alignas(64) std::uint64_t group_bits[most / 4];

    /// The reach of the block of n elements. Searches from `guess` on. A step tries two neighbours, so that a right
    /// guess takes one step.
    template <class Size>
    int find_reach(Size n, int guess) {
        reach_search search{guess};
        while (!search.done()) {
            const int tried = search.reach;
            const auto reach = static_cast<std::uint8_t>(tried);
            const auto below = static_cast<std::uint8_t>(std::max(tried - 1, 0));
            const auto [changed, exceptions, coded, more_exceptions, fewer_coded] = count_if(
                n, [&](std::size_t i) { return needs[i] != 0; }, [&](std::size_t i) { return needs[i] > reach; },
                [&](std::size_t i) { return exponents[i] < reach; }, [&](std::size_t i) { return needs[i] > below; },
                [&](std::size_t i) { return exponents[i] < below; });
            search.take(reaches(exceptions, changed, coded));
            if (search.enough == tried && !search.done()) {
                search.reach = tried - 1;
                search.take(reaches(more_exceptions, changed, fewer_coded));
            }
        }
        return search.enough;
    }

    /// Finds the exceptions among n elements in a block of reach `reach`, and clears their codes. Returns their number.
    template <class Size>
    std::size_t find_exceptions(int reach, Size n) {
        const auto within = static_cast<std::uint8_t>(reach);
        for (std::size_t i = 0; i != n; ++i) is_exception[i] = needs[i] > within;
        for (std::size_t i = n; i % 8 != 0; ++i) is_exception[i] = 0;
        for (std::size_t i = 0; i != n; ++i) codes[i] = is_exception[i] != 0 ? std::uint16_t{0} : codes[i];
        return static_cast<std::size_t>(count_if(n, [&](std::size_t i) { return is_exception[i]; })[0]);
    }

    /// Finds the numbers of bits of n codes in a block of reach `reach`. Returns the number of bytes of all.
    template <class Size>
    std::size_t find_bits(int reach, Size n) {
        const auto most_bits = static_cast<std::uint8_t>(exact_differences::most_bits);
        const auto above = static_cast<std::uint8_t>(reach);
        for (std::size_t i = 0; i != n; ++i) {
            bits[i] = std::min(static_cast<std::uint8_t>(std::max(exponents[i], above) - exponents[i]), most_bits);
        }
        for (std::size_t i = n; i % 8 != 0; ++i) codes[i] = bits[i] = 0;
        std::uint32_t sum = 0;
        for (std::size_t i = 0; i != 4 * ceil_div(n, 8); ++i) {
            const auto two = loaded_as<std::uint32_t>(bits + 2 * i);
            pair_bits[i] = (two & 0xffffu) + (two >> 16);
            sum += pair_bits[i];
        }
        return ceil_div(sum, 8);
    }

    /// Packs the codes of n elements into `to`, and writes up to 8 bytes more.
    template <class Size>
    void pack(Size n, std::byte* to) {
        for (std::size_t i = 0; i != 4 * ceil_div(n, 8); ++i) {
            const auto two = loaded_as<std::uint32_t>(codes + 2 * i);
            const auto two_bits = loaded_as<std::uint32_t>(bits + 2 * i);
            pairs[i] = (two & 0xffffu) | (two >> 16) << (two_bits & 0xffffu);
        }
        for (std::size_t i = 0; i != 2 * ceil_div(n, 8); ++i) {
            const auto two = loaded_as<std::uint64_t>(pairs + 2 * i);
            const auto two_bits = loaded_as<std::uint64_t>(pair_bits + 2 * i);
            groups[i] = (two & 0xffffffffu) | (two >> 32) << (two_bits & 0xffffffffu);
            group_bits[i] = (two_bits + (two_bits >> 32)) & 0xffffffffu;
        }
        std::uint64_t word = 0;
        std::size_t used = 0;
        const auto append = [&](std::uint64_t some, std::size_t size) {
            word |= some << used;
            std::memcpy(to, &word, sizeof word);
            used += size;
            to += used / 8;
            word >>= used / 8 * 8;
            used %= 8;
        };
        for (std::size_t i = 0; i != 2 * ceil_div(n, 8); i += 2) {
            // Most codes are short, so that two groups are appended in one turn.
            if (group_bits[i] + group_bits[i + 1] <= 56) {
                append(groups[i] | groups[i + 1] << group_bits[i], group_bits[i] + group_bits[i + 1]);
            } else {
                append(groups[i], group_bits[i]);
                append(groups[i + 1], group_bits[i + 1]);
            }
        }
    }
    /// Unpacks the codes of n elements from `from`, and reads up to 8 bytes more.
    template <class Size>
    void unpack(const std::byte* from, Size n) {
        std::size_t begin = 0;
        for (std::size_t i = 0; i != 2 * ceil_div(n, 8); ++i) {
            groups[i] = loaded_as<std::uint64_t>(from + begin / 8) >> begin % 8;
            begin += pair_bits[2 * i] + pair_bits[2 * i + 1];
        }
        // Bits above a pair and above a code are of the next ones.
        for (std::size_t i = 0; i != 2 * ceil_div(n, 8); ++i) {
            const std::uint64_t two = (groups[i] & 0xffffffffu) | groups[i] >> pair_bits[2 * i] << 32;
            std::memcpy(pairs + 2 * i, &two, sizeof two);
        }
        for (std::size_t i = 0; i != 4 * ceil_div(n, 8); ++i) {
            const auto two_bits = loaded_as<std::uint32_t>(bits + 2 * i);
            const std::uint32_t lower = pairs[i] & ((1u << (two_bits & 0xffffu)) - 1);
            const std::uint32_t upper = pairs[i] >> (two_bits & 0xffffu) & ((1u << (two_bits >> 16)) - 1);
            const std::uint32_t two = lower | upper << 16;
            std::memcpy(codes + 2 * i, &two, sizeof two);
        }
    }
};

/// Encodes the n elements of a block, rounded to T, with old elements at `old`, into `out`. `guess` is a reach to begin
/// with, and becomes the block's. Returns the number of bytes, at most 2n; writes up to 8 bytes more.
template <exact_element T, element S, class Size>
std::size_t encode_exact_block(const S* tensor, const T* old, Size n, int& guess, std::byte* header, std::byte* out) {
    exact_block of;
    for (std::size_t i = 0; i != n; ++i) of.codes[i] = exact_code(exact_bits<T>(tensor[i]), old[i].bits);
    std::uint16_t any = 0;
    for (std::size_t i = 0; i != n; ++i) any |= of.codes[i];
    if (any == 0) {
        header[0] = header[1] = std::byte{0};
        return 0;
    }
    for (std::size_t i = 0; i != n; ++i) of.exponents[i] = exponent_of<T>(old[i].bits);
    for (std::size_t i = 0; i != n; ++i) of.needs[i] = code_length(of.codes[i]);
    for (std::size_t i = 0; i != n; ++i) of.needs[i] = needed_reach(of.needs[i], of.exponents[i]);

    int reach = of.find_reach(n, guess);
    guess = std::min(reach, exact_differences::whole - 1);
    std::size_t exceptions = of.find_exceptions(reach, n);
    const std::size_t code_bytes = of.find_bits(reach, n);
    std::size_t bytes = code_bytes + exceptions * exact_differences::exception_bytes;
    if (reach != exact_differences::whole && bytes < 2 * n) {
        of.pack(n, out);
        std::byte* to = out + code_bytes;
        for (std::size_t i = 0; i < n; i += 8) {
            for (auto eight = loaded_as<std::uint64_t>(of.is_exception + i); eight != 0; eight &= eight - 1) {
                const std::size_t at = i + static_cast<std::size_t>(std::countr_zero(eight)) / 8;
                const std::uint16_t element = exact_bits<T>(tensor[at]);
                *to = static_cast<std::byte>(at);
                std::memcpy(to + 1, &element, sizeof element);
                to += exact_differences::exception_bytes;
            }
        }
    } else {
        reach = exact_differences::whole;
        exceptions = 0;
        bytes = 2 * n;
        for (std::size_t i = 0; i != n; ++i) {
            const std::uint16_t element = exact_bits<T>(tensor[i]);
            std::memcpy(out + 2 * i, &element, sizeof element);
        }
    }
    header[0] = static_cast<std::byte>(reach);
    header[1] = static_cast<std::byte>(exceptions);
    return bytes;
}

/// Decodes a block of n elements of type T from the bytes from `in` to `end`, in place of the old elements at `to`.
/// Returns the end of the block, or null if these bytes are no block of n elements.
template <exact_element T, class Size>
const std::byte* decode_exact_block(const std::byte* header, const std::byte* in, const std::byte* end, Size n, T* to) {
    constexpr std::size_t block = exact_differences::block_size;
    const int reach = static_cast<int>(header[0]);
    const auto exceptions = static_cast<std::size_t>(header[1]);
    const auto room = static_cast<std::size_t>(end - in);
    if (reach == exact_differences::whole) {
        if (exceptions != 0 || room < 2 * n) return nullptr;
        std::memcpy(static_cast<void*>(to), in, 2 * n);
        return in + 2 * n;
    }
    // Codes of reach 0 have no bits.
    if (reach == 0 && exceptions == 0) return in;
    exact_block of;
    for (std::size_t i = 0; i != n; ++i) of.exponents[i] = exponent_of<T>(to[i].bits);
    const std::size_t code_bytes = of.find_bits(reach, n);
    if (code_bytes + exceptions * exact_differences::exception_bytes > room) return nullptr;
    if (room < code_bytes + 8) {
        // Unpacking would read beyond the message.
        std::byte copy[block * exact_differences::most_bits / 8 + 8] = {};
        std::memcpy(copy, in, code_bytes);
        of.unpack(copy, n);
    } else {
        of.unpack(in, n);
    }
    for (std::size_t i = 0; i != n; ++i) to[i].bits = from_exact_code(of.codes[i], to[i].bits);
    in += code_bytes;
    int before = -1;
    for (std::size_t i = 0; i != exceptions; ++i, in += exact_differences::exception_bytes) {
        const int at = static_cast<int>(in[0]);
        if (at <= before || static_cast<std::size_t>(at) >= n) return nullptr;
        std::memcpy(static_cast<void*>(to + at), in + 1, 2);
        before = at;
    }
    return in;
}

ZEROPP_DETAIL_INLINE_END

}  // namespace zeropp::detail
