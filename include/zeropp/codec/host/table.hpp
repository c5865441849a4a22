#pragma once
/// \file
/// Codes of four bits to elements of two bytes through a table in a register: with AVX-512, where looking up 32 of them
/// is one instruction that no compiler finds. In the compilers' own vectors, because <immintrin.h> would take longer to
/// compile than all the rest of the codec.

#include <zeropp/codec/host/target.hpp>

#include <cstddef>
#include <cstring>

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))

namespace zeropp::detail {

/// Whether the target in use can look_up.
inline bool look_up_available() noexcept { return active_host_target() == host_target::avx512; }

/// What each code decodes to.
template <class T>
struct alignas(32) code_table {
    T elements[16];
};

/// to[i] <- what code i decodes to, for n codes, packed two to a byte. Requires n to be a multiple of 32.
template <class T>
[[gnu::target("avx512f,avx512bw")]] void look_up(const code_table<T>& table, const std::byte* codes, std::size_t n,
                                                 T* to) {
    using packed_codes [[gnu::vector_size(16)]] = char;
    using words [[gnu::vector_size(64)]] = int;
    using elements [[gnu::vector_size(64)]] = short;
    using half_of_elements [[gnu::vector_size(32)]] = short;
    static_assert(sizeof(code_table<T>) == sizeof(half_of_elements));
    // Indices are not cleared of their upper bits: the instruction takes five, so the table is there twice.
    half_of_elements once;
    std::memcpy(&once, table.elements, sizeof once);
    const elements twice = __builtin_shufflevector(once, once, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 0,
                                                   1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    for (std::size_t i = 0; i != n; i += 32) {
        packed_codes packed;
        std::memcpy(&packed, codes + i / 2, sizeof packed);
#if defined(__clang__)
        using bytes_of_codes [[gnu::vector_size(16)]] = unsigned char;
        const words bytes = __builtin_convertvector(reinterpret_cast<bytes_of_codes&>(packed), words);
        const elements found = __builtin_ia32_permvarhi512(twice, reinterpret_cast<elements>(bytes | bytes << 12));
#else
        // GCC 12 would convert them one by one.
        const words bytes = __builtin_ia32_pmovzxbd512_mask(packed, words{}, 0xffff);
        const elements found = __builtin_shuffle(twice, reinterpret_cast<elements>(bytes | bytes << 12));
#endif
        std::memcpy(to + i, &found, sizeof found);
    }
}

}  // namespace zeropp::detail

#define ZEROPP_DETAIL_HAS_LOOK_UP 1
#else
#define ZEROPP_DETAIL_HAS_LOOK_UP 0
#endif
