#pragma once
/// \file
/// Codes of four bits to elements of two bytes through a table in a register: with AVX-512, where looking up 32 of them
/// is one instruction that no compiler finds.

#include <zeropp/codec/host_target.hpp>

#include <cstddef>

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))

#include <immintrin.h>

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
    static_assert(sizeof(code_table<T>) == sizeof(__m256i));
    // Indices are not cleared of their upper bits: the instruction takes five, so the table is there twice. The masks
    // are for GCC 12, which takes the registers of the intrinsics without them for uninitialised.
    const __m256i once = _mm256_load_si256(reinterpret_cast<const __m256i*>(table.elements));
    const __m512i twice = _mm512_maskz_broadcast_i64x4(__mmask8{0xff}, once);
    for (std::size_t i = 0; i != n; i += 32) {
        const __m128i packed = _mm_loadu_si128(reinterpret_cast<const __m128i*>(codes + i / 2));
        const __m512i bytes = _mm512_maskz_cvtepu8_epi32(__mmask16{0xffff}, packed);
        const __m512i indices = _mm512_or_si512(bytes, _mm512_maskz_slli_epi32(__mmask16{0xffff}, bytes, 12));
        _mm512_storeu_si512(to + i, _mm512_maskz_permutexvar_epi16(__mmask32{0xffffffff}, indices, twice));
    }
}

}  // namespace zeropp::detail

#define ZEROPP_DETAIL_HAS_LOOK_UP 1
#else
#define ZEROPP_DETAIL_HAS_LOOK_UP 0
#endif
