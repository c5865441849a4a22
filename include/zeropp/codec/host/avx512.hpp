#pragma once
/// \file
/// AVX-512 loops that compilers do not vectorise well: sums of decoded codes, codes looked up in a table, and
/// conversion of halves. Uses the compilers' vector types, because <immintrin.h> takes longer to compile than the rest
/// of the codec. Results have the bits of the generic loops.

#include <zeropp/codec/host/share.hpp>
#include <zeropp/codec/host/target.hpp>

#include <cstddef>
#include <cstring>

#if ZEROPP_DETAIL_HAS_WIDE_TARGETS

#if defined(__clang__)
#define ZEROPP_DETAIL_AVX512 [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi")]]
#else
#define ZEROPP_DETAIL_AVX512 [[gnu::optimize("O3"), gnu::target("avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi")]]
#endif

namespace zeropp::detail::avx512 {

/// True if the type `Size` of a count says that it is a multiple of N, in a loop that is compiled for AVX-512.
template <class Size, std::size_t N>
inline constexpr bool serves = is_multiple_on<Size, host_target::avx512, N>;

using floats [[gnu::vector_size(64)]] = float;
using ints [[gnu::vector_size(64)]] = int;
using shorts [[gnu::vector_size(64)]] = short;
using half_shorts [[gnu::vector_size(32)]] = short;
using bytes [[gnu::vector_size(16)]] = char;
using signed_bytes [[gnu::vector_size(16)]] = signed char;
using unsigned_bytes [[gnu::vector_size(16)]] = unsigned char;

/// Number of floats, or of 32-bit integers, in a vector of 512 bits.
inline constexpr std::size_t lanes = 16;

/// The sixteen floats at `from`, as a vector. std::memcpy into an array of vectors would make GCC keep the array in
/// memory.
[[gnu::always_inline]] ZEROPP_DETAIL_AVX512 inline floats loaded(const float* from) {
    floats x;
    std::memcpy(&x, from, sizeof x);
    return x;
}
/// Stores the sixteen floats of x at `to`.
[[gnu::always_inline]] ZEROPP_DETAIL_AVX512 inline void store(floats x, float* to) { std::memcpy(to, &x, sizeof x); }

/// The sixteen signed bytes at `from`, as integers. GCC 12 would convert the bytes one by one without the builtin.
[[gnu::always_inline]] ZEROPP_DETAIL_AVX512 inline ints signed_ints(const std::byte* from) {
    bytes b;
    std::memcpy(&b, from, sizeof b);
#if defined(__clang__)
    return __builtin_convertvector(reinterpret_cast<signed_bytes>(b), ints);
#else
    return __builtin_ia32_pmovsxbd512_mask(b, ints{}, 0xffff);
#endif
}
/// The sixteen unsigned bytes at `from`, as integers. GCC 12 needs the builtin, or converts the bytes one by one.
[[gnu::always_inline]] ZEROPP_DETAIL_AVX512 inline ints unsigned_ints(const std::byte* from) {
    bytes b;
    std::memcpy(&b, from, sizeof b);
#if defined(__clang__)
    return __builtin_convertvector(reinterpret_cast<unsigned_bytes>(b), ints);
#else
    return __builtin_ia32_pmovzxbd512_mask(b, ints{}, 0xffff);
#endif
}

[[gnu::always_inline]] ZEROPP_DETAIL_AVX512 inline floats floats_of(half_shorts halves) {
#if defined(__clang__)
    return __builtin_ia32_vcvtph2ps512_mask(halves, floats{}, 0xffff, 4);
#else
    return __builtin_ia32_vcvtph2ps512_mask(halves, floats{}, -1, 4);
#endif
}

/// The vector of table[i & 15], for each i of `indices`.
[[gnu::always_inline]] ZEROPP_DETAIL_AVX512 inline floats found(floats table, ints indices) {
#if defined(__clang__)
    return __builtin_ia32_permvarsf512(table, indices);
#else
    return __builtin_shuffle(table, indices);
#endif
}

/// to[i] <- table[code i], for n packed 4-bit codes. Requires n to be a multiple of 32.
template <class T>
    requires(sizeof(T) == 2)
ZEROPP_DETAIL_AVX512 void look_up(const T (&table)[16], const std::byte* codes, std::size_t n, T* to) {
    // The permutation reads five bits of an index, and the fifth may be of the next code. So the table is there twice.
    half_shorts once;
    std::memcpy(&once, table, sizeof once);
    const shorts twice = __builtin_shufflevector(once, once, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1,
                                                 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    for (std::size_t i = 0; i != n; i += 2 * lanes) {
        const ints two = unsigned_ints(codes + i / 2);
        const ints indices = two | two << 12;
#if defined(__clang__)
        const shorts elements = __builtin_ia32_permvarhi512(twice, reinterpret_cast<shorts>(indices));
#else
        const shorts elements = __builtin_shuffle(twice, reinterpret_cast<shorts>(indices));
#endif
        std::memcpy(to + i, &elements, sizeof elements);
    }
}

/// table[code] <- the value of `code`, a 4-bit two's complement integer, times `multiplier`; every zero is +0.
ZEROPP_DETAIL_AVX512 inline void multiples(float multiplier, float (&table)[16]) {
    constexpr floats codes = {0, 1, 2, 3, 4, 5, 6, 7, -8, -7, -6, -5, -4, -3, -2, -1};
    const floats products = codes * multiplier + 0.0f;
    std::memcpy(table, &products, sizeof products);
}

/// Base class of arguments `Codes` of `sum_codes`: codes of 8 bits, each times its message's factor. A pair of vectors
/// has 32 sums in order.
struct multiplied {
    using factor = float;
    static constexpr std::size_t bits = 8;

    [[gnu::always_inline]] ZEROPP_DETAIL_AVX512 static void load_sums(const float* from, floats (&to)[2]) {
        to[0] = loaded(from);
        to[1] = loaded(from + lanes);
    }
    [[gnu::always_inline]] ZEROPP_DETAIL_AVX512 static void store_sums(const floats (&from)[2], float* to) {
        store(from[0], to);
        store(from[1], to + lanes);
    }
};

/// Argument `Codes` of `sum_codes` for two's complement codes of 8 bits.
struct integers : multiplied {
    [[gnu::always_inline]] ZEROPP_DETAIL_AVX512 static void decode(const std::byte* codes, float by, floats (&to)[2]) {
        to[0] = __builtin_convertvector(signed_ints(codes), floats) * by + 0.0f;
        to[1] = __builtin_convertvector(signed_ints(codes + lanes), floats) * by + 0.0f;
    }
};

/// Argument `Codes` of `sum_codes` for 8-bit floats: `MantissaBits` is 3 for `e4m3`, 2 for `e5m2`. Takes finite codes,
/// each times `unit`: moves the bits into halves, which have 2^-8 of the value of an `e4m3`.
template <int MantissaBits>
struct small_floats : multiplied {
    static constexpr float unit = MantissaBits == 3 ? 0x1p-8f : 1.0f;

    [[gnu::always_inline]] ZEROPP_DETAIL_AVX512 static void decode(const std::byte* codes, float by, floats (&to)[2]) {
        using bytes_of_words [[gnu::vector_size(32)]] = char;
        bytes_of_words b;
        std::memcpy(&b, codes, sizeof b);
#if defined(__clang__)
        using unsigned_bytes_of_words [[gnu::vector_size(32)]] = unsigned char;
        const shorts words = __builtin_convertvector(reinterpret_cast<unsigned_bytes_of_words>(b), shorts);
#else
        const shorts words = __builtin_ia32_pmovzxbw512_mask(b, shorts{}, ~0u);
#endif
        constexpr short sign = -0x8000;
        const shorts halves = MantissaBits == 3 ? (words << 8 & sign) | (words << 7 & 0x3f80) : words << 8;
        const half_shorts first =
            __builtin_shufflevector(halves, halves, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
        const half_shorts second =
            __builtin_shufflevector(halves, halves, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31);
        to[0] = floats_of(first) * by + 0.0f;
        to[1] = floats_of(second) * by + 0.0f;
    }

    /// True if all n codes are finite, as `decode` requires. Requires n to be a multiple of 32.
    ZEROPP_DETAIL_AVX512 static bool finite(const std::byte* codes, std::size_t n) {
        using unsigned_bytes_of_words [[gnu::vector_size(32)]] = unsigned char;
        constexpr unsigned char beyond = MantissaBits == 3 ? 0x7f : 0x7c;
        unsigned_bytes_of_words largest = {};
        for (std::size_t i = 0; i != n; i += 2 * lanes) {
            unsigned_bytes_of_words b;
            std::memcpy(&b, codes + i, sizeof b);
            b &= 0x7f;
            largest = b > largest ? b : largest;
        }
        unsigned char all[2 * lanes];
        std::memcpy(all, &largest, sizeof all);
        unsigned char most = 0;
        for (const unsigned char each : all) most = each > most ? each : most;
        return most < beyond;
    }
};

/// Argument `Codes` of `sum_codes` for codes of 4 bits, with a table of each message's values. A pair of vectors has
/// the sums of elements of even index, which lie in the lower bits of bytes, and of odd index, in the upper bits.
struct looked_up {
    using factor = float[16];
    static constexpr std::size_t bits = 4;

    [[gnu::always_inline]] ZEROPP_DETAIL_AVX512 static void load_sums(const float* from, floats (&to)[2]) {
        const floats first = loaded(from);
        const floats second = loaded(from + lanes);
        to[0] = __builtin_shufflevector(first, second, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
        to[1] = __builtin_shufflevector(first, second, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
    }
    [[gnu::always_inline]] ZEROPP_DETAIL_AVX512 static void store_sums(const floats (&from)[2], float* to) {
        store(__builtin_shufflevector(from[0], from[1], 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23), to);
        store(__builtin_shufflevector(from[0], from[1], 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31),
              to + lanes);
    }
    [[gnu::always_inline]] ZEROPP_DETAIL_AVX512 static void decode(const std::byte* codes, const factor& table,
                                                                   floats (&to)[2]) {
        const ints two = unsigned_ints(codes);
        to[0] = found(loaded(table), two);
        to[1] = found(loaded(table), two >> 4);
    }
};

/// sums[i] <- (sums[i] if `adds`) + value i of message 0 + value i of message 1 + ..., in this order. For n codes of
/// each of `messages` messages, `stride` bytes apart. `Codes` decodes message m by factors[m]. Keeps `Pairs` pairs of
/// vectors of sums in registers. Requires n to be a multiple of 32 * Pairs, and a message unless `adds`.
template <class Codes, std::size_t Pairs>
ZEROPP_DETAIL_AVX512 void sum_codes(const typename Codes::factor* factors, std::size_t messages, const std::byte* codes,
                                    std::size_t stride, std::size_t n, bool adds, float* sums) {
    constexpr std::size_t pair_bytes = 2 * lanes * Codes::bits / 8;
    for (std::size_t i = 0; i != n; i += 2 * Pairs * lanes, codes += Pairs * pair_bytes) {
        floats sum[Pairs][2];
        std::size_t m = 0;
        if (adds) {
            ZEROPP_DETAIL_UNROLL(4)
            for (std::size_t k = 0; k != Pairs; ++k) Codes::load_sums(sums + i + 2 * k * lanes, sum[k]);
        } else {
            ZEROPP_DETAIL_UNROLL(4)
            for (std::size_t k = 0; k != Pairs; ++k) Codes::decode(codes + k * pair_bytes, factors[0], sum[k]);
            m = 1;
        }
        for (; m != messages; ++m) {
            ZEROPP_DETAIL_UNROLL(4)
            for (std::size_t k = 0; k != Pairs; ++k) {
                floats x[2];
                Codes::decode(codes + m * stride + k * pair_bytes, factors[m], x);
                sum[k][0] += x[0];
                sum[k][1] += x[1];
            }
        }
        ZEROPP_DETAIL_UNROLL(4)
        for (std::size_t k = 0; k != Pairs; ++k) Codes::store_sums(sum[k], sums + i + 2 * k * lanes);
    }
}

/// x[i] <- x[i] * factor, for n values. Not inlined, so that no compiler fuses the products with later sums.
[[gnu::noinline]] ZEROPP_DETAIL_AVX512 inline void multiply(float* x, std::size_t n, float factor) {
    for (std::size_t i = 0; i != n; ++i) x[i] *= factor;
}

/// to[i] <- half i as a float, for n halves. Returns false, with `to` unspecified, if a half is NaN: the processor's
/// conversion would turn a signalling NaN into a quiet one. Requires n to be a multiple of 16.
ZEROPP_DETAIL_AVX512 inline bool floats_of_halves(const void* halves, std::size_t n, float* to) {
    half_shorts any_nan = {};
    for (std::size_t i = 0; i != n; i += lanes) {
        half_shorts h;
        std::memcpy(&h, static_cast<const std::byte*>(halves) + 2 * i, sizeof h);
        any_nan |= (h & 0x7fff) > 0x7c00;
        const floats x = floats_of(h);
        std::memcpy(to + i, &x, sizeof x);
    }
    const half_shorts none = {};
    return std::memcmp(&any_nan, &none, sizeof none) == 0;
}

/// to[i] <- from[i] as a half, for n floats; NaN becomes 0x7e00 with the sign kept. Requires n to be a multiple of 16.
ZEROPP_DETAIL_AVX512 inline void halves_of_floats(const float* from, std::size_t n, void* to) {
    for (std::size_t i = 0; i != n; i += lanes) {
        floats x;
        std::memcpy(&x, from + i, sizeof x);
        const half_shorts h = __builtin_ia32_vcvtps2ph512_mask(x, 0, half_shorts{}, 0xffff);
        const half_shorts nan = (h & static_cast<short>(0x8000)) | 0x7e00;
        const half_shorts kept = (h & 0x7fff) > 0x7c00 ? nan : h;
        std::memcpy(static_cast<std::byte*>(to) + 2 * i, &kept, sizeof kept);
    }
}

}  // namespace zeropp::detail::avx512

#endif
