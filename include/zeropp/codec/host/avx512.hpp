#pragma once
/// \file
/// AVX-512 loops that compilers do not vectorise well: conversions of 16-bit elements; and the vectors of all such
/// loops. Compilers' own vectors are used, because <immintrin.h> would take longer to compile than the rest of the
/// codec. Bits equal the generic loops'.
///
/// Loops have names in ..._in_vectors. Constants of like names say for which types they exist; generic loops choose by
/// them. Where there are no wide targets, the constants are false and the loops are not declared.

#include <zeropp/codec/host/share.hpp>
#include <zeropp/codec/host/target.hpp>
#include <zeropp/core/element.hpp>

#include <cstddef>
#include <cstring>
#include <type_traits>

namespace zeropp::detail {

/// True if an AVX-512 loop takes a count of type `Size`: the type says that it is a multiple of N.
template <class Size, std::size_t N>
inline constexpr bool on_avx512 = is_multiple_on<Size, host_target::avx512, N>;

/// True for `load_in_vectors`, and for `store_in_vectors`, of elements T.
template <class T, class Size>
inline constexpr bool loads_in_vectors = std::is_same_v<T, half> && on_avx512<Size, 32>;
template <class T, class Size>
inline constexpr bool stores_in_vectors =
    (std::is_same_v<T, half> || std::is_same_v<T, bfloat16>) && on_avx512<Size, 32>;

}  // namespace zeropp::detail

#if ZEROPP_DETAIL_HAS_WIDE_TARGETS

#if defined(__clang__)
#define ZEROPP_DETAIL_AVX512 [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi")]]
#else
#define ZEROPP_DETAIL_AVX512 [[gnu::optimize("O3"), gnu::target("avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi")]]
#endif

namespace zeropp::detail {
namespace avx512 {

using floats [[gnu::vector_size(64)]] = float;
using ints [[gnu::vector_size(64)]] = int;
using shorts [[gnu::vector_size(64)]] = short;
using unsigned_shorts [[gnu::vector_size(64)]] = unsigned short;
using half_shorts [[gnu::vector_size(32)]] = short;
using bytes [[gnu::vector_size(16)]] = char;
using signed_bytes [[gnu::vector_size(16)]] = signed char;
using unsigned_bytes [[gnu::vector_size(16)]] = unsigned char;

inline constexpr std::size_t lanes = 16;

/// Loads and stores one vector of floats: GCC keeps arrays of vectors in memory.
[[gnu::always_inline]] ZEROPP_DETAIL_AVX512 inline floats loaded(const float* from) {
    floats x;
    std::memcpy(&x, from, sizeof x);
    return x;
}
[[gnu::always_inline]] ZEROPP_DETAIL_AVX512 inline void store(floats x, float* to) { std::memcpy(to, &x, sizeof x); }

/// Sixteen bytes as integers, sign- or zero-extended. GCC 12 would convert them one by one.
[[gnu::always_inline]] ZEROPP_DETAIL_AVX512 inline ints signed_ints(const std::byte* from) {
    bytes b;
    std::memcpy(&b, from, sizeof b);
#if defined(__clang__)
    return __builtin_convertvector(reinterpret_cast<signed_bytes>(b), ints);
#else
    return __builtin_ia32_pmovsxbd512_mask(b, ints{}, 0xffff);
#endif
}
[[gnu::always_inline]] ZEROPP_DETAIL_AVX512 inline ints unsigned_ints(const std::byte* from) {
    bytes b;
    std::memcpy(&b, from, sizeof b);
#if defined(__clang__)
    return __builtin_convertvector(reinterpret_cast<unsigned_bytes>(b), ints);
#else
    return __builtin_ia32_pmovzxbd512_mask(b, ints{}, 0xffff);
#endif
}

/// Sixteen halves as floats.
[[gnu::always_inline]] ZEROPP_DETAIL_AVX512 inline floats floats_of(half_shorts halves) {
#if defined(__clang__)
    return __builtin_ia32_vcvtph2ps512_mask(halves, floats{}, 0xffff, 4);
#else
    return __builtin_ia32_vcvtph2ps512_mask(halves, floats{}, -1, 4);
#endif
}

/// table[indices & 15]
[[gnu::always_inline]] ZEROPP_DETAIL_AVX512 inline floats found(floats table, ints indices) {
#if defined(__clang__)
    return __builtin_ia32_permvarsf512(table, indices);
#else
    return __builtin_shuffle(table, indices);
#endif
}

}  // namespace avx512

/// x[i] <- x[i] * factor, for n values. Not inlined, so that no compiler fuses the products with later sums.
[[gnu::noinline]] ZEROPP_DETAIL_AVX512 inline void multiply_in_vectors(float* x, std::size_t n, float factor) {
    for (std::size_t i = 0; i != n; ++i) x[i] *= factor;
}

/// to[i] <- n halves as floats. The instruction would quieten a NaN: with one, all are converted in the generic way.
/// Requires n to be a multiple of 32.
ZEROPP_DETAIL_AVX512 inline void load_in_vectors(const half* from, std::size_t n, float* to) {
    avx512::half_shorts any_nan = {};
    for (std::size_t i = 0; i != n; i += avx512::lanes) {
        avx512::half_shorts h;
        std::memcpy(&h, from + i, sizeof h);
        any_nan |= (h & 0x7fff) > 0x7c00;
        avx512::store(avx512::floats_of(h), to + i);
    }
    const avx512::half_shorts none = {};
    if (std::memcmp(&any_nan, &none, sizeof none) == 0) return;
    for (std::size_t i = 0; i != n; ++i) to[i] = static_cast<float>(from[i]);
}

/// to[i] <- n floats as halves, NaN as `half` converts it. Requires n to be a multiple of 32.
ZEROPP_DETAIL_AVX512 inline void store_in_vectors(const float* from, std::size_t n, half* to) {
    using avx512::half_shorts;
    for (std::size_t i = 0; i != n; i += avx512::lanes) {
        const half_shorts h = __builtin_ia32_vcvtps2ph512_mask(avx512::loaded(from + i), 0, half_shorts{}, 0xffff);
        const half_shorts nan = (h & static_cast<short>(0x8000)) | 0x7e00;
        const half_shorts kept = (h & 0x7fff) > 0x7c00 ? nan : h;
        std::memcpy(to + i, &kept, sizeof kept);
    }
}

/// to[i] <- n floats as bfloat16. With an Inf or NaN among them, all are converted in the generic way. Requires n to be
/// a multiple of 32.
ZEROPP_DETAIL_AVX512 inline void store_in_vectors(const float* from, std::size_t n, bfloat16* to) {
    using avx512::shorts;
    using avx512::unsigned_shorts;
    unsigned_shorts largest = {};
    for (std::size_t i = 0; i != n; i += 2 * avx512::lanes) {
        unsigned_shorts first;
        unsigned_shorts second;
        std::memcpy(&first, from + i, sizeof first);
        std::memcpy(&second, from + i + avx512::lanes, sizeof second);
        // Loaded once, not for each use.
        __asm__("" : "+v"(first), "+v"(second));
        const unsigned_shorts lower =
            __builtin_shufflevector(first, second, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30, 32, 34,
                                    36, 38, 40, 42, 44, 46, 48, 50, 52, 54, 56, 58, 60, 62);
        const unsigned_shorts upper =
            __builtin_shufflevector(first, second, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31, 33, 35,
                                    37, 39, 41, 43, 45, 47, 49, 51, 53, 55, 57, 59, 61, 63);
        // Ties go to even: up if the last bit that stays is set.
        const unsigned_shorts stays = 0x8000 - (upper & 1);
        const unsigned_shorts rounded = lower > stays ? upper + 1 : upper;
        std::memcpy(to + i, &rounded, sizeof rounded);
        const unsigned_shorts magnitude = upper << 1;
        largest = magnitude > largest ? magnitude : largest;
    }
    constexpr auto not_less = 5;
    const auto infinite = reinterpret_cast<shorts>(unsigned_shorts{} + static_cast<unsigned short>(2 * 0x7f80));
    if (__builtin_ia32_ucmpw512_mask(reinterpret_cast<shorts>(largest), infinite, not_less, ~0u) == 0) return;
    for (std::size_t i = 0; i != n; ++i) to[i] = static_cast<bfloat16>(from[i]);
}

}  // namespace zeropp::detail

#endif
