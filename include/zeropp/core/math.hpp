#pragma once
/// \file
/// Integer helpers for sizes, float arithmetic that rounds alike under all compiler flags, random numbers by counter.

#include <zeropp/core/config.hpp>

#include <cfenv>
#include <cstddef>
#include <cstdint>
#include <limits>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace zeropp {

/// The smallest integer not below a / b. Requires b > 0.
constexpr ZEROPP_HOST_DEVICE std::size_t ceil_div(std::size_t a, std::size_t b) { return a / b + (a % b != 0 ? 1 : 0); }

/// The smallest multiple of `multiple` not below n. Requires multiple > 0, and that a std::size_t can hold the result.
constexpr ZEROPP_HOST_DEVICE std::size_t round_up(std::size_t n, std::size_t multiple) {
    return ceil_div(n, multiple) * multiple;
}

/// a * b rounded to float; a product of zero is +0. Never fused with a later addition. A fused multiply-add would make
/// the last bit depend on instruction set and optimiser, and differ between ranks, or between host and GPU.
///
/// Compilers' barriers against contraction do not hold: GCC's vectoriser drops __builtin_assoc_barrier, and clang's
/// contract(off) yields to -ffp-contract=fast. So `product` adds 0 itself: fused with this addition or not, the value
/// is rounded once. Only the sign of a product too small for a float depends on the compiler.
constexpr ZEROPP_HOST_DEVICE inline float product(float a, float b) {
#if defined(__CUDA_ARCH__)
    return __fadd_rn(__fmul_rn(a, b), 0.0f);
#else
    return a * b + 0.0f;
#endif
}

/// a / b correctly rounded, whatever the precision flags of device code.
constexpr ZEROPP_HOST_DEVICE inline float quotient(float a, float b) {
#if defined(__CUDA_ARCH__)
    return __fdiv_rn(a, b);
#else
    return a / b;
#endif
}

namespace detail {
/// While an object of this class lives, its thread computes in IEEE's default mode: denormals are kept, rounding is to
/// nearest, and nothing traps. A framework, or -ffast-math at link time alone, may have set another mode on this rank
/// only.
class default_arithmetic {
public:
    default_arithmetic(const default_arithmetic&) = delete;
    default_arithmetic& operator=(const default_arithmetic&) = delete;

#if defined(__x86_64__)
    // Setting MXCSR, the mode of SSE and AVX, is ten times as fast as std::fesetenv, which also sets the x87 unit.
    default_arithmetic() : before_(_mm_getcsr()) { set(defaults); }
    ~default_arithmetic() { set(before_); }

private:
    static constexpr unsigned flags = 0x3f;       // bits of raised exceptions, no part of the mode
    static constexpr unsigned defaults = 0x1f80;  // MXCSR of IEEE's default mode

    void set(unsigned mode) const {
        if ((before_ & ~flags) != defaults) _mm_setcsr(mode);
    }

    unsigned before_;
#else
    default_arithmetic() {
        std::fegetenv(&before_);
        std::fesetenv(FE_DFL_ENV);
    }
    ~default_arithmetic() { std::fesetenv(&before_); }

private:
    std::fenv_t before_;
#endif
};
}  // namespace detail

/// True if float arithmetic follows IEEE. False if the optimiser has used -fno-signed-zeros, -freciprocal-math,
/// -funsafe-math-optimizations or -fno-honor-nans, for which clang has no macro. core/config.hpp refuses the other
/// parts of -ffast-math.
inline bool ieee_arithmetic() {
    const detail::default_arithmetic by_default;
    const volatile float minus_zero = -0.0f;
    const volatile float five = 5.0f;
    const volatile float nan = std::numeric_limits<float>::quiet_NaN();
    const float dividend = five;
    const float unordered = nan;
    if (unordered == unordered) return false;  // not isnan, which clang refuses under -fno-honor-nans
    // With -freciprocal-math, 5 / 3 would be 5 times the float nearest to 1/3, which has the bits 0x3fd55556.
    return __builtin_bit_cast(std::uint32_t, minus_zero + 0.0f) == 0 &&
           __builtin_bit_cast(std::uint32_t, dividend / 3.0f) == 0x3fd55555u;
}

/// The bits of x as an integer. The builtin replaces std::bit_cast, which device code may not call.
constexpr ZEROPP_HOST_DEVICE inline std::uint32_t float_bits(float x) { return __builtin_bit_cast(std::uint32_t, x); }

/// The float with the given bits.
constexpr ZEROPP_HOST_DEVICE inline float bits_float(std::uint32_t bits) { return __builtin_bit_cast(float, bits); }

/// The bits of +Inf. A float is Inf or NaN if its bits without the sign, as an integer, are at least this number.
inline constexpr std::uint32_t infinity_bits = 0x7f800000u;

/// True if x is neither Inf nor NaN. Compares bits as integers, because some flags let compilers assume that every
/// float is finite.
constexpr ZEROPP_HOST_DEVICE inline bool is_finite(float x) { return (float_bits(x) & 0x7fffffffu) < infinity_bits; }

/// x, or 0 if x is Inf or NaN.
constexpr ZEROPP_HOST_DEVICE inline float finite_or_zero(float x) { return is_finite(x) ? x : 0.0f; }

/// The NaN that the library writes into results and stored parameters.
inline constexpr float quiet_nan = std::numeric_limits<float>::quiet_NaN();

/// Four 32-bit words: random bits, or the counter of which `philox` makes random bits.
struct random_words {
    std::uint32_t word[4];
};

/// Philox 4x32 with 10 rounds: 128 random bits of a 128-bit counter under a 64-bit key.
/// Source     Salmon et al., Parallel random numbers: as easy as 1, 2, 3 (SC 2011); cuRAND and PyTorch use it too
constexpr ZEROPP_HOST_DEVICE inline random_words philox(random_words counter, std::uint64_t key) noexcept {
    auto key_low = static_cast<std::uint32_t>(key);
    auto key_high = static_cast<std::uint32_t>(key >> 32);
    for (int round = 0; round != 10; ++round) {
        const std::uint64_t a = std::uint64_t{0xd2511f53u} * counter.word[0];
        const std::uint64_t b = std::uint64_t{0xcd9e8d57u} * counter.word[2];
        counter = {{static_cast<std::uint32_t>(b >> 32) ^ counter.word[1] ^ key_low, static_cast<std::uint32_t>(b),
                    static_cast<std::uint32_t>(a >> 32) ^ counter.word[3] ^ key_high, static_cast<std::uint32_t>(a)}};
        key_low += 0x9e3779b9u;
        key_high += 0xbb67ae85u;
    }
    return counter;
}

}  // namespace zeropp
